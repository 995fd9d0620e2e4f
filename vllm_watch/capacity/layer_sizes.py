"""Sizes that differ between layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vllm_watch.capacity.bounds import is_size
from vllm_watch.capacity.layer_pattern import Config
from vllm_watch.capacity.model import Attention, Model
from vllm_watch.capacity.read_experts import number


def with_layer_sizes(model: Model, config: Config) -> Model:
    """Add them to the model."""
    value = number(config, "v_head_dim") if model.latent is None else None
    model = replace(model, value_dim=value)
    width = model.intermediate_size
    if model.experts is None:
        width = number(config, "shared_intermediate_size") or width  # Granite 4 without experts
    per_layer = number(config, "hidden_size_per_layer_input") or 0
    return replace(
        model,
        intermediate_size=number(config, "intermediate_size_mlp") or width,  # Llama 4
        mlp_widths=_widths(model, config),
        window_attention=_window_attention(model, config),
        per_layer_size=per_layer,
        per_layer_vocab=number(config, "vocab_size_per_layer_input") or model.vocab_size,
        small_matrices=_small(model, config),
    )


def _widths(model: Model, config: Config) -> tuple[int, ...] | None:
    listed: Any = config.get("intermediate_size")
    if isinstance(listed, list | tuple) and len(listed) == model.num_layers and all(map(is_size, listed)):  # fmt: skip
        return tuple(listed)
    if not config.get("use_double_wide_mlp") or model.intermediate_size is None:
        return None
    first = model.num_layers - model.shared_layers  # Gemma 4: layers without a cache of their own
    return tuple(
        model.intermediate_size * (2 if index >= first > 0 else 1)
        for index in range(model.num_layers)
    )


def _window_attention(model: Model, config: Config) -> Attention | None:
    other = config.get("attention_other_setting")  # Step 3.5
    if isinstance(other, Mapping) and other.get("attention_type") == "sliding_attention":
        found, names = other, ("num_attention_heads", "num_attention_groups", "head_dim", "v_head_dim")  # fmt: skip
    else:  # MiMo-V2
        found, names = config, ("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim")  # fmt: skip
    heads, shared, key, value = (number(found, name) for name in names)
    if heads is None and shared is None and key is None:
        return None
    dim = key or model.head_dim
    return Attention(
        heads=heads or model.num_attention_heads,
        key_value_heads=shared or model.num_key_value_heads,
        key_dim=dim,
        value_dim=value or (dim if key else model.value_dim or dim),
    )


def _small(model: Model, config: Config) -> int:
    # Gemma 3n: LAuReL and AltUp
    rank, inputs = number(config, "laurel_rank") or 0, number(config, "altup_num_inputs") or 1
    hidden = model.hidden_size
    return 2 * hidden * rank * model.num_layers + 2 * (inputs - 1) * hidden * hidden
