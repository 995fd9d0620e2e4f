"""Find each layer's cache on one GPU.

A cache holds all tokens, a window of tokens, or one state per request. Source: vLLM's
kv_cache_interface.py and Mamba state shapes; CacheEngine before V1.
"""

from dataclasses import dataclass, replace

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import DS_MLA_ROW_BYTES, dtype_bytes, head_bytes, key_value_bytes
from vllm_watch.capacity.model import Attention, LayerKind, Model
from vllm_watch.capacity.units import ceil_div, round_up

_V0_PAD_ELEMENTS = 128  # 0.7.1 and 0.7.2 pad MLA's elements to a multiple of this
PLAIN_MLA_HEAD = 256  # before vLLM's MLA cache, heads of 192 were padded to this
_INDEXER_SCALE_BYTES = 4
_PLAIN_EDGE = 2  # layers at either end that TurboQuant skips


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's cache on one GPU, which holds tokens or a state."""

    bytes_per_token: int
    window_tokens: int | None = None
    """Number of tokens kept. None if all are kept."""
    chunked: bool = False
    state_bytes: int = 0
    """Bytes per request of any length."""
    checkpoints: int = 0
    latent: bool = False


def stage_layers(model: Model, stages: int) -> tuple[tuple[LayerKind, ...], ...]:
    """Return the layers of each pipeline stage, as vLLM splits them."""
    count = model.num_layers
    sizes = [count // stages] * stages
    rest = count % stages
    # Extra layers go to the stages before the last stage, which also holds the output head.
    for index in range(rest):
        sizes[(stages - 2 - index) % stages] += 1
    cut, parts = 0, []
    for size in sizes:
        parts.append(model.layer_kinds[cut : cut + size])
        cut += size
    return tuple(parts)


def layer_caches(
    model: Model, settings: Settings, kinds: tuple[LayerKind, ...]
) -> list[LayerCache]:
    """Return the caches of these layers, without the drafter."""
    first_shared = model.num_layers - model.shared_layers
    cached = kinds[:first_shared] if len(kinds) == model.num_layers else kinds
    plain = _kept_plain(cached, settings)
    kept = replace(settings, kv_cache_dtype="auto")
    made = {
        (kind, own): _of_kind(kind, model, kept if own else settings)
        for kind in set(cached)
        for own in (False, True)
    }
    return [each for index, kind in enumerate(cached) for each in made[kind, index in plain]]


def _kept_plain(kinds: tuple[LayerKind, ...], settings: Settings) -> frozenset[int]:
    if not settings.kv_cache_dtype.startswith("turboquant_") or LayerKind.STATE in kinds:
        return frozenset()
    count = len(kinds)
    return frozenset((*range(_PLAIN_EDGE), *range(count - _PLAIN_EDGE, count)))


def draft_caches(model: Model, settings: Settings) -> list[LayerCache]:
    """Return the drafter's caches."""
    drafter = settings.flags.drafter
    if drafter is None:
        return []
    if drafter.model is not None:
        return layer_caches(drafter.model, settings, drafter.model.layer_kinds)
    return _full(model, settings) * drafter.layers


def _of_kind(kind: LayerKind, model: Model, settings: Settings) -> list[LayerCache]:
    if kind is LayerKind.NONE:
        return []
    if kind is LayerKind.STATE:
        return _state(model, settings)
    if kind is LayerKind.STATE_AND_FULL:
        return _state(model, settings) + _full(model, settings)
    if kind is LayerKind.FULL:
        return _full(model, settings)
    window = model.sliding_window if kind is LayerKind.SLIDING else model.chunk_size
    per_token = _per_token(model.attention(kind), settings)
    return [LayerCache(per_token, window_tokens=window, chunked=kind is LayerKind.CHUNKED)]


def _full(model: Model, settings: Settings) -> list[LayerCache]:
    latent = model.latent
    if latent is None:
        return [LayerCache(_per_token(model.attention(LayerKind.FULL), settings))]
    if settings.release < releases.MLA_LATENT_CACHE:
        heads = _heads_here(model.num_key_value_heads, settings)
        return [LayerCache(heads * key_value_bytes(PLAIN_MLA_HEAD, settings.kv_cache_dtype, settings.dtype))]  # fmt: skip
    row = latent.lora_rank + latent.rope_dim
    if settings.release < releases.MLA_UNPADDED:
        row = round_up(row, _V0_PAD_ELEMENTS)
    if settings.kv_cache_dtype == "fp8_ds_mla" or (
        latent.indexer_dim and settings.kv_cache_dtype.startswith("fp8")
    ):
        per_token = DS_MLA_ROW_BYTES
    else:
        per_token = head_bytes(row, settings.kv_cache_dtype, settings.dtype)
    caches = [LayerCache(per_token, latent=True)]
    if latent.indexer_dim:
        caches.append(LayerCache(latent.indexer_dim + _INDEXER_SCALE_BYTES, latent=True))
    return caches


def _heads_here(heads: int, settings: Settings) -> int:
    return max(1, heads // settings.tensor_parallel_size)


def _per_token(shape: Attention, settings: Settings) -> int:
    heads, types = (
        _heads_here(shape.key_value_heads, settings),
        (settings.kv_cache_dtype, settings.dtype),
    )
    if shape.key_dim == shape.value_dim:
        return heads * key_value_bytes(shape.key_dim, *types)
    return heads * (head_bytes(shape.key_dim, *types) + head_bytes(shape.value_dim, *types))


def _state(model: Model, settings: Settings) -> list[LayerCache]:
    state = model.state
    if state is None:
        return []
    ranks = settings.tensor_parallel_size
    channels = state.conv_channels
    if state.groups and state.groups % ranks:  # every rank holds whole groups of B and C
        channels += state.grouped_channels // state.groups * (ranks - state.groups)
    ahead = settings.flags.drafter.tokens if settings.flags.drafter else 0
    element = dtype_bytes(settings.dtype)
    convolution = ceil_div(channels, ranks) * (state.conv_kernel - 1 + ahead) * element
    heads = ceil_div(state.state_heads, ranks)
    # Only CPU kernels with AVX-512 BF16 need float32.
    said = state.state_dtype or ("float32" if settings.cpu else settings.dtype)
    recurrent = heads * state.state_elements_per_head * dtype_bytes(said)
    checkpoints = state.checkpoints if settings.release >= releases.STATE_CHECKPOINTS else 0
    return [LayerCache(0, state_bytes=convolution + recurrent, checkpoints=checkpoints)]
