"""The peak of the profiling run: what one full batch needs beside weights and KV cache.

Two moments compete. In the MLP of a layer all tokens of the batch have their widest intermediates at
once; in the sampler all sequences have their logits, in float32, several times over (sorted for top-k
and top-p, as probabilities, as log-probabilities). vLLM provokes both, and the higher one counts.
"""

from dataclasses import dataclass

from vllm_watch.capacity import calibration
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.model import Model
from vllm_watch.capacity.units import ceil_div

_LOGIT_BYTES = 4  # float32
_STREAMS = 3  # hidden states, the residual beside them, and the output of the layer
_USUAL_RATIO = 3.5  # intermediate to hidden size, where neither config nor weights tell
_MOE_CHUNK_TOKENS = 32768  # more tokens than these pass the experts in turns


@dataclass(frozen=True, slots=True)
class Activation:
    """The two peaks, in bytes on the GPU that samples."""

    forward_bytes: int
    sampler_bytes: int
    peak_bytes: int


def activation(model: Model, settings: Settings, *, intermediate: int | None) -> Activation:
    """What the profiling run reaches above the weights."""
    element = dtype_bytes(settings.dtype)
    tokens, ranks = settings.max_num_batched_tokens, settings.tensor_parallel_size
    stream = tokens * model.hidden_size * element
    width = intermediate or int(_USUAL_RATIO * model.hidden_size)
    forward = _STREAMS * stream + _widest(model, settings, ceil_div(width, ranks)) * element
    logits = settings.max_num_seqs * model.vocab_size * _LOGIT_BYTES
    sampler = int(calibration.SAMPLER_COPIES.value * logits)
    if releases.PROFILES_DEVICE <= settings.release < releases.PROFILES_CLEAN_DEVICE:
        # These count what the allocator holds, free or not: the blocks of queries, keys and values and
        # those of the sampler find no place in the ones that the MLP left, so all of them add up.
        queries = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
        attention = tokens * ceil_div(queries, ranks) * element
        return Activation(forward, sampler, forward + attention + sampler)
    return Activation(forward, sampler + stream, max(forward, sampler + stream))


def _widest(model: Model, settings: Settings, width: int) -> int:
    """Elements of the widest intermediates at once: the MLP's, or the routed experts'."""
    tokens = settings.max_num_batched_tokens
    dense = tokens * ((2 if model.gated_mlp else 1) * width + width)
    experts = model.experts
    if experts is None:
        return dense
    each = ceil_div(experts.intermediate_size or width, settings.tensor_parallel_size)
    rows = min(tokens, _MOE_CHUNK_TOKENS) * experts.active
    if settings.release >= releases.MOE_SHARES_BUFFER:
        return rows * (max(2 * each, model.hidden_size) + each)
    return rows * (2 * each + each + model.hidden_size)
