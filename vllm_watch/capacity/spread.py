"""Estimate the uncertainty of the KV cache's size."""

from vllm_watch.capacity import calibration
from vllm_watch.capacity.activation import sampler_copies
from vllm_watch.capacity.calibration import Figure
from vllm_watch.capacity.overheads import graph_count
from vllm_watch.capacity.plan import Plan
from vllm_watch.capacity.quantization import find_quantization
from vllm_watch.capacity.units import GIB

# Observed errors. Some tensors are not loaded, or loaded twice. Some matrices of a quantized checkpoint are
# not quantized.
_CHECKPOINT, _COUNTED, _QUANTIZED = 0.01, 0.02, 0.06
_FORWARD = 0.25  # of the peak, unless the sampler causes it


def tokens_spread(plan: Plan) -> tuple[int, int]:
    """Return the smallest and the largest number of tokens that vLLM may print."""
    settings = plan.settings
    if settings.flags.kv_cache_memory_bytes is not None or settings.flags.num_gpu_blocks_override:
        return plan.tokens, plan.tokens
    unsure = _weights(plan)
    parts = [(unsure, unsure), *([] if plan.machine.beyond_source else _figures(plan))]
    low = plan.kv_bytes - sum(more for _, more in parts)
    high = plan.kv_bytes + sum(less for less, _ in parts)
    blocks = [max(0, int(size)) // max(1, plan.pool.bytes_per_block) for size in (low, high)]
    fewest, most = (plan.pool.logged_tokens(each, settings.max_model_len) for each in blocks)
    return min(fewest, plan.tokens), max(most, plan.tokens)


def _weights(plan: Plan) -> float:
    if plan.checkpoint.given_gib is not None:
        return 0.0
    share = _CHECKPOINT
    if plan.checkpoint.bytes_total is None:
        flags, model = plan.settings.flags, plan.model
        quantized = find_quantization(flags.quantization, model.quantization).smallest is not None
        share = _QUANTIZED if quantized else _COUNTED
    return share * plan.weights.bytes_per_gpu


def _figures(plan: Plan) -> list[tuple[float, float]]:
    copies = sampler_copies(plan.settings.release)
    found = [_around(copies, plan.activation.logits_bytes)]
    if not plan.activation.logits_bytes:
        found = [(_FORWARD * plan.activation.peak_bytes, _FORWARD * plan.activation.peak_bytes)]
    if plan.non_torch_bytes:
        alone, each = calibration.NON_TORCH_ONE_GPU_GIB, calibration.NON_TORCH_PER_RANK_GIB
        ranks = plan.settings.tensor_parallel_size * plan.settings.flags.pipeline_parallel_size
        found.append(_around(alone, GIB) if ranks == 1 else _around(each, ranks * GIB))
    if plan.graph_bytes:
        found.append(_around(calibration.GRAPHS_GIB, GIB))
        found.append(_around(calibration.GRAPH_GIB, graph_count(plan.settings.max_num_seqs) * GIB))
    return found


def _around(figure: Figure, unit: float) -> tuple[float, float]:
    return (figure.value - figure.low) * unit, (figure.high - figure.value) * unit
