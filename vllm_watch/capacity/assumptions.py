"""The assumptions of a plan, as text, and the uncertainty of the KV cache's size."""

from vllm_watch.capacity import overheads
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import LENGTH_UNSAID
from vllm_watch.capacity.overheads import Figure, graph_count, sampler_copies
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
    unsure = _unsure_weights(plan)
    parts = [(unsure, unsure), *([] if plan.machine.beyond_source else _unsure_figures(plan))]
    low = plan.kv_bytes - sum(more for _, more in parts)
    high = plan.kv_bytes + sum(less for less, _ in parts)
    blocks = [max(0, int(size)) // max(1, plan.pool.bytes_per_block) for size in (low, high)]
    fewest, most = (plan.pool.logged_tokens(each, settings.max_model_len) for each in blocks)
    return min(fewest, plan.tokens), max(most, plan.tokens)


def _unsure_weights(plan: Plan) -> float:
    if plan.checkpoint.given_gib is not None:
        return 0.0
    share = _CHECKPOINT
    if plan.checkpoint.bytes_total is None:
        flags, model = plan.flags, plan.model
        quantized = find_quantization(flags.quantization, model.quantization).smallest is not None
        share = _QUANTIZED if quantized else _COUNTED
    return share * plan.weights.bytes_per_gpu


def _unsure_figures(plan: Plan) -> list[tuple[float, float]]:
    copies = sampler_copies(plan.settings.release)
    found = [_around(copies, plan.activation.logits_bytes)]
    if not plan.activation.logits_bytes:
        found = [(_FORWARD * plan.activation.peak_bytes, _FORWARD * plan.activation.peak_bytes)]
    if plan.non_torch_bytes:
        alone, each = overheads.NON_TORCH_ONE_GPU_GIB, overheads.NON_TORCH_PER_RANK_GIB
        ranks = plan.flags.ranks
        found.append(_around(alone, GIB) if ranks == 1 else _around(each, ranks * GIB))
    if plan.graph_bytes:
        found.append(_around(overheads.GRAPHS_GIB, GIB))
        found.append(_around(overheads.GRAPH_GIB, graph_count(plan.settings.max_num_seqs) * GIB))
    return found


def _around(figure: Figure, unit: float) -> tuple[float, float]:
    return (figure.value - figure.low) * unit, (figure.high - figure.value) * unit


def assumptions(plan: Plan) -> tuple[str, ...]:
    """Return one sentence per assumption, most important first."""
    settings, flags = plan.settings, plan.flags
    said = [
        f"vLLM {settings.release}, engine {settings.engine}",
        f"memory per GPU: {plan.machine.memory_source}, none of it used by others",
        f"weights: {plan.weights.source}",
        f"profiled batch: {settings.max_num_batched_tokens} tokens, {settings.max_num_seqs} sequences",
        *_figures(plan),
        *plan.model.notes,
    ]
    if plan.machine.beyond_source:
        said.append(
            f"measured: {plan.machine.beyond_source} used {plan.machine.beyond_bytes / GIB:+.2f} GiB compared with its plan; this plan includes the same difference"
        )
    if flags.max_model_len is None and plan.model.max_position_embeddings is None:
        said.append(f"max_model_len {LENGTH_UNSAID}: the config names no limit")
    if plan.model.intermediate_size is None and plan.model.experts is None:
        said.append(
            "the config gives no intermediate_size: the MLP's width follows from the weights"
        )
    if plan.model.multimodal:
        said.append(_encoder(plan))
    if flags.kv_cache_dtype == "auto" != settings.kv_cache_dtype:
        said.append(f"KV cache in {settings.kv_cache_dtype}, as the checkpoint's quantization names it")  # fmt: skip
    if plan.model.draft_layers and flags.drafter is None:
        said.append("no speculative decoding, though the checkpoint has draft layers")
    if flags.drafter is not None and flags.drafter.model is None:
        said.append(
            f"{flags.drafter.method}: {flags.drafter.layers} draft layers shaped as the model's own"
        )
    if flags.release > releases.NEWEST:
        said.append(f"rules as of vLLM {releases.NEWEST}: newer ones were not checked")
    if (
        settings.engine == "V1"
        and settings.release < releases.GRAPHS_IN_BUDGET
        and not flags.enforce_eager
    ):
        said.append("CUDA graphs (0.1 to 1 GiB) come on top of the budget in this release")
    return tuple(said)


def _encoder(plan: Plan) -> str:
    peak = plan.activation.encoder_bytes / GIB
    if not peak:
        return "the encoder's own peak while profiling images is not counted (often 0.2 to 1 GiB)"
    return f"encoder while profiling images: {peak:.2f} GiB, unless --language-model-only or fewer images are asked for"


def _figures(plan: Plan) -> list[str]:
    if plan.flags.kv_cache_memory_bytes is not None:
        return ["the KV cache is as given: --gpu-memory-utilization has no effect"]
    copies = sampler_copies(plan.settings.release)
    said = [f"sampler: {copies.value} ({copies.low} to {copies.high}) {copies.unit}"]
    if plan.non_torch_bytes:
        figure, each = overheads.NON_TORCH_ONE_GPU_GIB, ""
        if plan.gpus_needed > 1:
            figure = overheads.NON_TORCH_PER_RANK_GIB
            each = " for each rank of the group, on each"
        said.append(
            f"CUDA context and libraries: {figure.value} ({figure.low} to {figure.high}) GiB{each}"
        )
    if plan.graph_bytes:
        base, one = overheads.GRAPHS_GIB, overheads.GRAPH_GIB
        count = graph_count(plan.settings.max_num_seqs)
        said.append(
            f"CUDA graphs: {base.value} ({base.low} to {base.high}) GiB and {one.value} "
            f"({one.low} to {one.high}) for each of {count}"
        )
    return [*said, f"calibration of {overheads.CALIBRATION_VERSION}"]
