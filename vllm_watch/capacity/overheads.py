"""Estimate the memory of vLLM's profiling run, CUDA context, NCCL and CUDA graphs, without weights and KV cache.

The peak of the profiling run is in the encoder with the largest images, in the MLP with its widest intermediates,
or in the sampler with float32 copies of all logits. vLLM profiles the encoder first, with as many of the largest
images as fit into one step, and keeps the output. Source: profile_run and MultiModalBudget of vLLM's V1.
"""

from dataclasses import dataclass

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.model import LatentAttention, Model
from vllm_watch.capacity.pool import PLAIN_MLA_HEAD
from vllm_watch.capacity.release import Release
from vllm_watch.capacity.units import GIB, ceil_div
from vllm_watch.capacity.weights import count_parameters

CALIBRATION_VERSION = "2026-11-27.2"
"""Increase it with every change of a figure. The figures were measured in public start-up logs, because no formula gives them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, its observed range and its source."""

    value: float
    low: float
    high: float
    unit: str
    source: str


SAMPLER_COPIES = Figure(
    9.57, 8.4, 9.9, "float32 copies of the logits",
    "V1 0.11 on H100: 5.56 GiB for 1024 sequences and a vocabulary of 151,936; V0 0.8: 1.4 GiB for 256 and "
    "152,064; V1 0.10 on B200: 9.96 GiB for 1024 and 262,144",
)  # fmt: skip
SAMPLER_COPIES_UNSORTED = Figure(
    3.5, 2.0, 5.0, "float32 copies of the logits",
    "0.26 on RTX 5090: 0.54 GiB between 8 and 256 sequences and a vocabulary of 248,320; of the code of 0.32: "
    "logits in two widths, probabilities and noise",
)  # fmt: skip
NON_TORCH_ONE_GPU_GIB = Figure(
    0.13, 0.04, 0.35, "GiB",
    "0.6 to 0.11 on T4, RTX 3090, L40S, A100, H100: the middle of eleven starts",
)  # fmt: skip
NON_TORCH_PER_RANK_GIB = Figure(
    0.27, 0.07, 0.5, "GiB",
    "0.7 to 0.13: 0.54 with 2 H100 and 2.10 with 8 A100 over NVLink; less over PCIe (0.25 with 2 RTX 4090), "
    "more with symmetric memory (B200)",
)  # fmt: skip
GRAPHS_GIB = Figure(
    0.25, 0.07, 0.5, "GiB", "0.18 to 0.22 with 2 to 18 graphs: 0.08 to 0.61, in the middle 0.30"
)
LAZY_CONTEXT_GIB = Figure(
    0.31, 0.1, 0.4, "GiB",
    "0.6.4 on RTX A6000 (issue 10360): 0.44 outside PyTorch, less the 0.13 above",
)  # fmt: skip
GRAPH_GIB = Figure(
    0.0058, 0.003, 0.015, "GiB",
    "the same with 86 to 102 graphs, from Qwen2.5-7B on RTX 4090 to B200: 0.53 to 1.58, in the middle 0.76",
)  # fmt: skip


_LOGIT_BYTES = 4
_STREAMS = 3  # hidden states, residual, and the layer's output
_USUAL_RATIO = 3.5  # intermediate size / hidden size, if unknown
_MOE_CHUNK_TOKENS = 32768  # the experts take larger batches in chunks

# Three tensors have the hidden size: image, residual and a norm's output. Two are as wide as the
# MLP: before and after its activation. Measured: 1.4 to 1.5 GiB for 16,384 tokens of Qwen3.8-27B on
# one RTX 5090 (vLLM 0.26), 1.3 to 1.6 on two cards.
_ENCODER_STREAMS, _ENCODER_WIDEST = 3, 2


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
        ranks = settings.tensor_parallel_size * model.num_layers
        forward += count_parameters(model).matrices * element // ranks
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
    whole = max(1, settings.max_num_batched_tokens // encoder.item_tokens)
    images = min(whole, settings.max_num_seqs)
    tokens = images * encoder.item_tokens
    # Two ranks do not lower the peak, because exchange buffers need the memory that splitting the
    # MLP saves.
    width = _ENCODER_STREAMS * encoder.hidden_size + _ENCODER_WIDEST * encoder.intermediate_size
    return (
        tokens * encoder.patches_per_token * width * element,
        tokens * model.hidden_size * element,
        images,
    )


def sampler_copies(release: Release) -> Figure:
    """Return the number of float32 copies of the logits."""
    if release >= releases.SAMPLER_DOES_NOT_SORT:
        return SAMPLER_COPIES_UNSORTED
    return SAMPLER_COPIES


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


_LARGEST_GRAPH, _COARSE_FROM, _FINE_STEP = 512, 256, 8  # sequences


def non_torch_bytes(settings: Settings) -> int:
    """Return the memory outside PyTorch that vLLM's profiling measures."""
    ranks = settings.flags.ranks
    size = NON_TORCH_ONE_GPU_GIB.value
    if ranks > 1:  # NCCL keeps buffers for every peer
        size = NON_TORCH_PER_RANK_GIB.value * ranks
    if releases.PROFILES_CLEAN_DEVICE <= settings.release < releases.LEAVES_OUT_CONTEXT:
        size += LAZY_CONTEXT_GIB.value
    return int(size * GIB)


def graph_bytes(settings: Settings) -> int:
    """Return the memory of CUDA graphs. 0 if the budget does not include it."""
    if settings.flags.enforce_eager or settings.release < releases.GRAPHS_IN_BUDGET or settings.cpu:
        return 0
    size = GRAPHS_GIB.value + GRAPH_GIB.value * graph_count(settings.max_num_seqs)
    return int(size * GIB)


def graph_count(sequences: int) -> int:
    """Return the number of CUDA graphs for mixed batches and for decoding."""
    mixed = min(2 * sequences, _LARGEST_GRAPH)
    return _sizes(mixed) + _sizes(min(sequences, mixed))


def _sizes(most: int) -> int:
    """Count vLLM's default sizes: 1, 2, 4, multiples of 8 up to 256, and multiples of 16 above."""
    wide = range(_COARSE_FROM, most + 1, 2 * _FINE_STEP)
    return sum(
        size <= most for size in (1, 2, 4, *range(_FINE_STEP, _COARSE_FROM, _FINE_STEP), *wide)
    )
