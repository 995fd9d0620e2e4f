"""Experts, and each layer's MLP."""

from collections.abc import Mapping
from typing import Any

from vllm_watch.capacity.bounds import is_size
from vllm_watch.capacity.layer_pattern import Config, mlp_letters
from vllm_watch.capacity.model import Experts, FeedForward, LayerKind

_NONE, _DENSE, _MIXTURE = FeedForward.NONE, FeedForward.DENSE, FeedForward.MIXTURE
_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_ACTIVE = ("num_experts_per_tok", "moe_topk", "num_experts_per_token", "moe_k", "moe_top_k", "top_k_experts")  # fmt: skip
_SIZES = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size", "ffn_hidden_size", "ffn_dim")  # fmt: skip
_SHARED_SIZES = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
_SHARED_COUNTS = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")  # fmt: skip
_FIRST_DENSE = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
_STEPS = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "moe_layer_interval", "expert_layer_period")  # fmt: skip
_MIXER_ALONE = ("mamba", "mamba2", "falcon_mamba")


def number(config: Config, *keys: str) -> int | None:
    """Return the number of the first key that has one. A list counts as its largest."""
    for key in keys:
        value = config.get(key)
        sizes: Any = value if isinstance(value, list | tuple) else [value]
        found: list[int] = [each for each in sizes if is_size(each)]
        if found:
            return max(found)
    return None


def read_experts(config: Config) -> Experts | None:
    """Return the experts, or None for a dense model."""
    feed = config.get("ffn_config")  # DBRX
    inner = feed if isinstance(feed, Mapping) else config
    count = number(inner, *_COUNTS)
    if not count or count == 1:
        return None
    size = number(config, *_SIZES) or number(inner, *_SIZES) or 0
    return Experts(
        count=count,
        # Mixtral uses 2 of 8 experts; DeepSeek and Qwen use 8 of many.
        active=number(config, *_ACTIVE) or (2 if count <= 16 else 8),  # noqa: PLR2004
        intermediate_size=size,
        shared_intermediate_size=_shared(config, size),
        latent_size=number(config, "moe_latent_size"),
    )


def _shared(config: Config, size: int) -> int:
    each, count = number(config, "moe_shared_expert_intermediate_size"), number(config, *_SHARED_COUNTS)  # fmt: skip
    if str(config.get("model_type")).startswith("llama4"):
        return size
    if config.get("enable_moe_block"):  # Gemma 4 adds its experts to a dense MLP
        return number(config, "intermediate_size") or 0
    return number(config, *_SHARED_SIZES) or (each or size) * (count or 0)


def feed_forwards(
    config: Config, kinds: tuple[LayerKind, ...], *, mixture: bool
) -> tuple[FeedForward, ...]:
    """Return each layer's MLP."""
    count, letters = len(kinds), mlp_letters(config)
    if letters is not None:
        found = {"-": _DENSE, "E": _MIXTURE if mixture else _DENSE}
        return tuple(found.get(letters[index % len(letters)], _NONE) for index in range(count))
    usual = _mixtures(config, count) if mixture else [False] * count
    alone = config.get("model_type") in _MIXER_ALONE
    return tuple(
        _NONE if alone and kind is LayerKind.STATE else _MIXTURE if sparse else _DENSE
        for kind, sparse in zip(kinds, usual, strict=True)
    )


def _mixtures(config: Config, count: int) -> list[bool]:
    listed = _listed(config, count)
    if listed is not None:
        return listed
    first, step = number(config, *_FIRST_DENSE) or 0, number(config, *_STEPS) or 1
    last = number(config, "moe_layer_end_index") or count
    dense = config.get("mlp_only_layers") or ()
    offset = config.get("expert_layer_offset")  # Jamba
    rest = offset if isinstance(offset, int) else step - 1
    return [
        first <= index <= last and index % step == rest % step and index not in dense
        for index in range(count)
    ]


def _listed(config: Config, count: int) -> list[bool] | None:
    for key in ("moe_layer_freq", "mlp_layer_types"):
        flags: Any = config.get(key)
        if isinstance(flags, list | tuple) and len(flags) >= count:
            return [bool(each) and each != "dense" for each in flags[:count]]
    for key in ("moe_layers_enum", "moe_layers"):
        named = config.get(key)
        if isinstance(named, str):
            named = [int(each) for each in named.split(",") if each.strip()]
        if isinstance(named, list | tuple) and named:
            return [index in named for index in range(count)]
    return None
