"""Find each layer's cache on one GPU, and plan the pool of KV blocks that the layers share.

A cache holds all tokens, a window of tokens, or one state per request. Groups of layers share the pool, so all
blocks have one size. The layers of a group have the same kind of cache.

Source: vLLM's kv_cache_interface.py, kv_cache_utils.py and Mamba state shapes; CacheEngine before V1.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

from vllm_watch.capacity import release as releases
from vllm_watch.capacity.flags import Settings
from vllm_watch.capacity.kv_types import DS_MLA_ROW_BYTES, dtype_bytes, head_bytes, key_value_bytes
from vllm_watch.capacity.model import Attention, LayerKind, Model
from vllm_watch.capacity.units import ceil_div

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
        row = ceil_div(row, _V0_PAD_ELEMENTS) * _V0_PAD_ELEMENTS
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


_LATENT_ALIGNMENT = 128  # with states, MLA's kernels need blocks of a multiple of 128 tokens
_KERNEL_BLOCK, _CPU_KERNEL_BLOCK = 16, 32
# All groups have the same number of layers. If the most frequent kind of cache has fewer than this
# many times the layers of the rarest kind, smaller groups are padded. Otherwise, kinds are split
# into several groups.
_PAD_RATHER_THAN_SPLIT = 1.5


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of one kind of cache that share one block table."""

    cache: LayerCache
    block_tokens: int
    """Tokens per block; 0 if a block holds one state."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Blocks of one size."""

    bytes_per_block: int
    groups: tuple[Group, ...]
    settings: Settings

    @property
    def block_size(self) -> int:
        """Tokens per block, as vLLM prints it."""
        return min((each.block_tokens for each in self.groups if each.block_tokens), default=0)

    def blocks_per_request(self, length: int) -> int:
        return sum(self._blocks_of(group, length) for group in self.groups)

    def _blocks_of(self, group: Group, length: int) -> int:
        settings, cache = self.settings, group.cache
        ahead = settings.flags.drafter.tokens if settings.flags.drafter else 0
        if not group.block_tokens:
            for_prefixes = settings.release >= releases.STATE_PAGES_FOR_PREFIXES
            if settings.flags.enable_prefix_caching and for_prefixes:
                return 2 + cache.checkpoints + ahead
            return 1 + ahead
        if cache.window_tokens is not None:
            batches = 1  # the window keeps the blocks of each step in flight
            if settings.release >= releases.WINDOW_KEEPS_IN_FLIGHT:
                ahead_of_time = settings.flags.async_scheduling is not False
                batches = settings.flags.pipeline_parallel_size + ahead_of_time
            in_flight = settings.max_num_batched_tokens * batches
            before = cache.window_tokens - (0 if cache.chunked else 1)
            tokens = min(before + in_flight, length)
            return ceil_div(tokens, group.block_tokens) + (0 if cache.chunked else 1)
        return ceil_div(
            ceil_div(length, settings.flags.decode_context_parallel_size), group.block_tokens
        )

    def fits(self, blocks: int, length: int) -> bool:
        """Return True if one request of this length fits, so that vLLM would start."""
        reserved = 1 if self.settings.release >= releases.NULL_BLOCK_RESERVED else 0
        if not self.groups:
            return True
        if self.settings.engine == "V0":
            return blocks * self.block_size >= length
        return self.blocks_per_request(length) <= blocks - reserved

    def longest(self, blocks: int, limit: int) -> int:
        """Return the length of the longest request that fits, or 0."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(blocks, middle) else (low, middle - 1)
        return low

    def concurrency(self, blocks: int, length: int) -> float:
        if not self.groups:
            return math.inf
        if self.settings.engine == "V0":
            return blocks * self.block_size / length
        return blocks / self.blocks_per_request(length)

    def logged_tokens(self, blocks: int, length: int) -> int:
        if not self.groups:
            return 0
        if not self.block_size:  # one block per request
            return blocks * length
        if self.settings.release >= releases.TOKENS_FROM_CONCURRENCY:
            return int(self.concurrency(blocks, length) * length)
        wide = self.settings.flags.decode_context_parallel_size
        return blocks // len(self.groups) * self.block_size * wide


def make_pool(caches: list[LayerCache], settings: Settings) -> Pool:
    """Return the pool that these layers of one GPU share."""
    if settings.engine == "V0" or settings.release < releases.HYBRID_POOL:
        return _uniform_pool(caches, settings)
    states = [each for each in caches if each.state_bytes]
    tokens = [each for each in caches if each.bytes_per_token]
    block = settings.block_size
    if states and tokens:
        block = _aligned_block(states, tokens, settings)
    return _grouped_pool(tokens, states, block, settings)


def _uniform_pool(caches: list[LayerCache], settings: Settings) -> Pool:
    """Without hybrid pools, layers with a window keep all tokens, too."""
    per_token = sum(each.bytes_per_token for each in caches)
    groups = (Group(LayerCache(per_token), settings.block_size),) if per_token else ()
    return Pool(per_token * settings.block_size, groups, settings)


def _aligned_block(states: list[LayerCache], tokens: list[LayerCache], settings: Settings) -> int:
    kernel = _CPU_KERNEL_BLOCK if settings.cpu else _KERNEL_BLOCK
    step = max(kernel, settings.block_size)
    if tokens[0].latent:
        step = max(step, _LATENT_ALIGNMENT)
    page = max(each.state_bytes for each in states)
    return max(settings.block_size, step * ceil_div(page, step * tokens[0].bytes_per_token))


def _grouped_pool(
    tokens: list[LayerCache], states: list[LayerCache], block: int, settings: Settings
) -> Pool:
    kinds = Counter((*tokens, *states))
    if not kinds:
        return Pool(0, (), settings)
    if len({(each.window_tokens, each.chunked, bool(each.state_bytes)) for each in kinds}) == 1:
        per_block = sum(_page(each, block) * count for each, count in kinds.items())
        each = next(iter(kinds))
        return Pool(per_block, (_group(each, block),), settings)
    page = max(_page(each, block) for each in kinds)
    fewest, most = min(kinds.values()), max(kinds.values())
    size = most if most < fewest * _PAD_RATHER_THAN_SPLIT else fewest
    groups: list[Group] = []
    for each, count in kinds.items():
        own = _page(each, block)
        length = block * (page // own if page % own == 0 else 1)
        groups += [_group(each, length)] * ceil_div(count, size)
    return Pool(page * size, tuple(groups), settings)


def _group(cache: LayerCache, block: int) -> Group:
    return Group(cache, 0 if cache.state_bytes else block)


def _page(cache: LayerCache, block: int) -> int:
    return cache.state_bytes or cache.bytes_per_token * block
