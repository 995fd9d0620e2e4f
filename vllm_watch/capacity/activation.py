"""Estimate the peak memory of vLLM's profiling run, without weights and KV cache.

The peak is in the encoder with the largest images, in the MLP with its widest intermediates, or in
the sampler with float32 copies of all logits.
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

_LOGIT_BYTES = 4
_STREAMS = 3  # hidden states, residual, and the layer's output
_USUAL_RATIO = 3.5  # intermediate size / hidden size, if unknown
_MOE_CHUNK_TOKENS = 32768  # the experts take larger batches in chunks


@dataclass(frozen=True, slots=True)
class Activation:
    """Peak bytes on the GPU that runs the sampler."""

    encoder_bytes: int
    peak_bytes: int
    logits_bytes: int = 0
    """Bytes of one copy of the logits. 0 if something else causes the peak."""


def activation(
    model: Model, settings: Settings, *, intermediate: int | None, offloaded: bool = False
) -> Activation:
    """Return the peak of the profiling run, without the weights."""
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
    if images and settings.engine == "V0":  # V0 profiles one image per prompt
        sequences = min(sequences, images)
    logits = sequences * model.vocab_size * _LOGIT_BYTES
    sampler = int(sampler_copies(settings.release).value * logits) + stream
    if settings.engine == "V1" and settings.release < releases.V1_BY_DEFAULT:
        # V1 before 0.8 computes logits for every token and does not sample.
        sampler = settings.max_num_batched_tokens * model.vocab_size * element + stream
    peak = max(seen, kept + max(forward, sampler))
    return Activation(seen, peak, logits if peak == kept + sampler else 0)


def _encoder(model: Model, settings: Settings, element: int) -> tuple[int, int, int]:
    encoder = model.encoder
    if encoder is None:
        return 0, 0, 0
    images = encoders.profiled_items(encoder, settings.max_num_batched_tokens)
    images = min(images, settings.max_num_seqs)
    tokens = images * encoder.item_tokens
    seen = encoders.peak_bytes(encoder, tokens, element)
    return seen, tokens * model.hidden_size * element, images


def _fetched(model: Model, settings: Settings) -> int:
    ranks = settings.tensor_parallel_size * model.num_layers
    return count_parameters(model).matrices * dtype_bytes(settings.dtype) // ranks


def sampler_copies(release: Release) -> calibration.Figure:
    """Return the number of float32 copies of the logits."""
    if release >= releases.SAMPLER_DOES_NOT_SORT:
        return calibration.SAMPLER_COPIES_UNSORTED
    return calibration.SAMPLER_COPIES


def _held(model: Model, settings: Settings, width: int, stream: int) -> int:
    """Return the memory that the allocator has reserved. Releases before 0.6.4 count it.

    Attention frees a block that is too small for the MLP's first output, but perhaps not for the second.
    The sampler fits into the MLP's blocks.
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
    """Return MLA's elements per token, for releases without an MLA cache.

    The blocks are: queries, keys with values, keys, padded queries, padded keys, padded values,
    padded output and output. Source: deepseek_v2.py of 0.6.4.
    """
    head = latent.nope_dim + latent.rope_dim
    each = 2 * head + latent.nope_dim + 2 * latent.value_dim + 4 * PLAIN_MLA_HEAD
    return ceil_div(model.num_attention_heads, ranks) * each


def _widest(model: Model, settings: Settings, width: int) -> int:
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
