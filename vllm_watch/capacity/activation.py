"""The peak of the profiling run: what one full batch needs beside weights and KV cache.

Three moments compete. The encoder of a multimodal model reads the largest images. In the MLP of a layer all tokens of the batch have their widest intermediates at
once; in the sampler all sequences have their logits, in float32, several times over (sorted for top-k
and top-p, as probabilities, as log-probabilities). vLLM provokes both, and the higher one counts.
"""

from dataclasses import dataclass

from vllm_watch.capacity import calibration
from vllm_watch.capacity import encoder as encoders
from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.layer_caches import PLAIN_MLA_HEAD
from vllm_watch.capacity.model import LatentAttention, Model
from vllm_watch.capacity.parameters import count_parameters
from vllm_watch.capacity.release import Release
from vllm_watch.capacity.units import ceil_div

_LOGIT_BYTES = 4  # float32
_STREAMS = 3  # hidden states, the residual beside them, and the output of the layer
_USUAL_RATIO = 3.5  # intermediate to hidden size, where neither config nor weights tell
_MOE_CHUNK_TOKENS = 32768  # more tokens than these pass the experts in turns


@dataclass(frozen=True, slots=True)
class Activation:
    """The peak of all, and that of the encoder alone, in bytes on the GPU that samples."""

    encoder_bytes: int
    peak_bytes: int
    logits_bytes: int = 0
    """One copy of the logits, where the sampler makes the peak."""


def activation(
    model: Model, settings: Settings, *, intermediate: int | None, offloaded: bool = False
) -> Activation:
    """What the profiling run reaches above the weights."""
    element = dtype_bytes(settings.dtype)
    stream = settings.max_num_batched_tokens * model.hidden_size * element
    width = ceil_div(
        intermediate or int(_USUAL_RATIO * model.hidden_size), settings.tensor_parallel_size
    )
    forward = _STREAMS * stream + _widest(model, settings, width) * element
    if settings.release < releases.PROFILES_CLEAN_DEVICE:
        forward = _held(model, settings, width, stream)
    if offloaded and settings.engine == "V0":
        forward += _fetched(model, settings)
    seen, kept, images = _encoder(model, settings, element)
    sequences = settings.max_num_seqs
    if images and settings.engine == "V0":  # it profiles prompts of one image each
        sequences = min(sequences, images)
    logits = sequences * model.vocab_size * _LOGIT_BYTES
    sampler = int(sampler_copies(settings.release).value * logits) + stream
    if settings.engine == "V1" and settings.release < releases.V1_BY_DEFAULT:
        # Before it did: the logits of every token, and no sampler.
        sampler = settings.max_num_batched_tokens * model.vocab_size * element + stream
    peak = max(seen, kept + max(forward, sampler))
    return Activation(seen, peak, logits if peak == kept + sampler else 0)


def _encoder(model: Model, settings: Settings, element: int) -> tuple[int, int, int]:
    """While the encoder reads images, what of them stays for the language model, and how many they are."""
    encoder = model.encoder
    if encoder is None:
        return 0, 0, 0
    images = encoders.profiled_items(encoder, settings.max_num_batched_tokens)
    images = min(images, settings.max_num_seqs)
    tokens = images * encoder.item_tokens
    seen = encoders.peak_bytes(encoder, tokens, element)
    return seen, tokens * model.hidden_size * element, images


def _fetched(model: Model, settings: Settings) -> int:
    """V0 copies a layer that is in the host's memory to the GPU while it runs (V1 reads it there)."""
    ranks = settings.tensor_parallel_size * model.num_layers
    return count_parameters(model).matrices * dtype_bytes(settings.dtype) // ranks


def sampler_copies(release: Release) -> calibration.Figure:
    """How many times over the logits lie there, in float32."""
    if release >= releases.SAMPLER_DOES_NOT_SORT:
        return calibration.SAMPLER_COPIES_UNSORTED
    return calibration.SAMPLER_COPIES


def _held(model: Model, settings: Settings, width: int, stream: int) -> int:
    """What the allocator took in all, free or not, which some releases count.

    The block of queries, keys and values is free again when the MLP begins, but too small for its first
    output; the second, half as large, may fit into it. The sampler fits into what the MLP leaves.
    """
    tokens, ranks = settings.max_num_batched_tokens, settings.tensor_parallel_size
    element = dtype_bytes(settings.dtype)
    queries = ceil_div(model.num_attention_heads * model.head_dim, ranks) * tokens * element
    keys = ceil_div(model.num_key_value_heads * model.head_dim, ranks) * tokens * element
    attention = queries + 2 * keys
    around = _STREAMS * stream + attention + queries
    if model.latent is not None:
        around = _STREAMS * stream + _unpacked(model, model.latent, ranks) * tokens * element
    if model.experts is not None:
        return around + _widest(model, settings, width) * element
    second = tokens * width * element
    first = 2 * second if model.gated_mlp else second
    return around + first + (second if second > attention else 0)


def _unpacked(model: Model, latent: LatentAttention, ranks: int) -> int:
    """Elements per token of MLA before it had a cache of its own: each has a block.

    Queries, keys with values, keys; all three and the output padded; the output cut. Source: deepseek_v2.py of 0.6.4.
    """
    head = latent.nope_dim + latent.rope_dim
    each = 2 * head + latent.nope_dim + 2 * latent.value_dim + 4 * PLAIN_MLA_HEAD
    return ceil_div(model.num_attention_heads, ranks) * each


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
