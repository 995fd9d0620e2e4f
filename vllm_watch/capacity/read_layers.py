"""Find each layer's kind, MLP, experts, sizes and recurrent state in any of the config formats.

Source of the states: vLLM's MambaStateShapeCalculator and each family's get_mamba_state_shape.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from vllm_watch.capacity.kv_types import dtype_bytes
from vllm_watch.capacity.model import (
    Attention,
    Experts,
    FeedForward,
    LayerKind,
    Model,
    RecurrentState,
)
from vllm_watch.capacity.units import is_size, shown

Config = Mapping[str, Any]

_FULL, _SLIDING, _STATE = LayerKind.FULL, LayerKind.SLIDING, LayerKind.STATE
_NAMES = {
    "full_attention": _FULL, "attention": _FULL, "full": _FULL, "global": _FULL, "a": _FULL,
    "sliding_attention": _SLIDING, "sliding": _SLIDING, "local": _SLIDING,
    "chunked_attention": LayerKind.CHUNKED,
    "linear_attention": _STATE, "mamba": _STATE, "mamba2": _STATE, "conv": _STATE,
    "recurrent": _STATE, "m": _STATE, "hybrid": LayerKind.STATE_AND_FULL,
    "mlp": LayerKind.NONE, "moe": LayerKind.NONE,
}  # fmt: skip
# MiniMax, then MiMo-V2: the kind of 1, and that of 0.
_NUMBERED = (("attn_type_list", _FULL, _STATE), ("hybrid_layer_pattern", _SLIDING, _FULL))
_LISTS = ("layer_types", "layers_block_type", "block_types")
_OVERRIDE_PATTERN = {"M": _STATE, "*": _FULL, "-": LayerKind.NONE, "E": LayerKind.NONE}
# Without `layer_types`, the model's code sets the pattern: the last of each N layers has full
# attention. Source: the defaults of the configuration classes in transformers.
_FULL_ONCE_IN = {
    "gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2,
    "qwen3_next": 4, "qwen3_5": 4, "qwen3_5_moe": 4, "qwen3_5_text": 4, "qwen3_5_moe_text": 4,
}  # fmt: skip
_STATE_FAMILIES = ("qwen3_next", "qwen3_5")


def layer_kinds(config: Config, count: int) -> tuple[LayerKind, ...]:
    """Return the kind of each layer, in order."""
    for rule in _RULES:
        kinds = rule(config, count)
        if kinds is not None:
            return tuple(kinds[:count])
    return (_FULL,) * count


def mlp_letters(config: Config) -> str | None:
    """Nemotron-H: '-' is an MLP, 'E' has experts."""
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        letters = {"mlp": "-", "moe": "E"}
        lists = (config.get(key) for key in _LISTS)
        names = next((each for each in lists if isinstance(each, list | tuple) and each), ())
        pattern = "".join(letters.get(str(name).lower(), "*") for name in names)
    return pattern if set(pattern) & {"-", "E"} else None


def unknown_kinds(config: Config) -> list[str]:
    """Return the unknown layer types of the config."""
    lists = (config.get(key) for key in _LISTS)
    words = {
        str(name).lower() for names in lists if isinstance(names, list | tuple) for name in names
    }
    return sorted(words - _NAMES.keys())


def _listed(config: Config, count: int) -> list[LayerKind] | None:
    for key in _LISTS:
        names = config.get(key)
        if isinstance(names, list | tuple) and names:
            kinds = [_NAMES.get(str(name).lower(), _FULL) for name in names]
            return [kinds[index % len(kinds)] for index in range(count)]
    for key, kind, other in _NUMBERED:
        numbers = config.get(key)
        if isinstance(numbers, list | tuple) and numbers:
            return [kind if number == 1 else other for number in numbers]
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return [_OVERRIDE_PATTERN.get(letter, _FULL) for letter in pattern]
    return None


def _full_among_states(config: Config, count: int) -> list[LayerKind] | None:
    linear = config.get("linear_attn_config")  # Kimi Linear; its layers count from 1
    indices = config.get("attn_layer_indices") or config.get("full_attn_idxs")
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset")  # Jamba
    first = 0
    if isinstance(linear, Mapping) and linear.get("full_attn_layers"):
        full, first = set(linear["full_attn_layers"]), 1
    elif isinstance(indices, list | tuple):
        full = set(indices)
    elif period and offset is not None:
        full = {index for index in range(count) if index % period == offset}
    else:
        return None
    return [_FULL if index + first in full else _STATE for index in range(count)]


def _rhythm(config: Config, count: int) -> list[LayerKind] | None:
    family = str(config.get("model_type") or "")
    state = family.startswith(_STATE_FAMILIES) or "full_attention_interval" in config
    period = (
        config.get("full_attention_interval")
        or config.get("sliding_window_pattern")
        or config.get("_sliding_window_pattern")
        or _FULL_ONCE_IN.get(family)
    )
    if not isinstance(period, int) or (not state and not config.get("sliding_window")):
        return None
    other = _STATE if state else _SLIDING
    return [_FULL if (index + 1) % period == 0 else other for index in range(count)]


def _llama4(config: Config, count: int) -> list[LayerKind] | None:
    if not config.get("attention_chunk_size"):
        return None
    no_rope = config.get("no_rope_layers")
    if isinstance(no_rope, list | tuple) and len(no_rope) == count:
        return [LayerKind.CHUNKED if uses else _FULL for uses in no_rope]
    return [_FULL if (index + 1) % 4 == 0 else LayerKind.CHUNKED for index in range(count)]


def _all_alike(config: Config, count: int) -> list[LayerKind] | None:
    family = str(config.get("model_type") or "")
    if family == "falcon_h1":
        return [LayerKind.STATE_AND_FULL] * count
    if family in ("mamba", "mamba2", "falcon_mamba", "rwkv"):
        return [_STATE] * count
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return None
    if config.get("use_sliding_window") and "max_window_layers" in config:
        first = config["max_window_layers"]  # Qwen2: later layers have a window
        return [_FULL if index < first else _SLIDING for index in range(count)]
    return [_SLIDING] * count


_RULES: tuple[Callable[[Config, int], list[LayerKind] | None], ...] = (
    _listed, _full_among_states, _llama4, _rhythm, _all_alike,
)  # fmt: skip


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
    listed = _listed_mixtures(config, count)
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


def _listed_mixtures(config: Config, count: int) -> list[bool] | None:
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


def with_layer_sizes(model: Model, config: Config) -> Model:
    """Add them to the model."""
    value = number(config, "v_head_dim") if model.latent is None else None
    model = replace(model, value_dim=value)
    width = model.intermediate_size
    if model.experts is None:
        width = number(config, "shared_intermediate_size") or width  # Granite 4 without experts
    per_layer = number(config, "hidden_size_per_layer_input") or 0
    rank, inputs = number(config, "laurel_rank") or 0, number(config, "altup_num_inputs") or 1
    hidden = model.hidden_size
    return replace(
        model,
        intermediate_size=number(config, "intermediate_size_mlp") or width,  # Llama 4
        mlp_widths=_widths(model, config),
        window_attention=_window_attention(model, config),
        per_layer_size=per_layer,
        per_layer_vocab=number(config, "vocab_size_per_layer_input") or model.vocab_size,
        # Gemma 3n: LAuReL and AltUp
        small_matrices=2 * hidden * (rank * model.num_layers + (inputs - 1) * hidden),
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


_MAMBA2_HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
_MAMBA2_HEAD_DIMS = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
# Qwen3-Next and later. Values are as wide as the queries of attention.
_GDN_HEAD_DIM, _GDN_KEY_HEADS, _CONV_KERNEL = 128, 16, 4


def read_state(config: Config, hidden: int, heads: int, head_dim: int) -> RecurrentState:
    """Return the state of one recurrent layer per sequence. Raises ValueError if a size is invalid."""
    state = _of_family(config, hidden, heads, head_dim)
    if state.state_dtype is not None:
        dtype_bytes(state.state_dtype)
    return state


def _of_family(config: Config, hidden: int, heads: int, head_dim: int) -> RecurrentState:
    family = str(config.get("model_type") or "")
    if "linear_num_value_heads" in config:
        return _qwen(config)
    if isinstance(config.get("linear_attn_config"), dict):
        return _kimi(config)
    if "conv_L_cache" in config:  # LFM2
        width = _size(config, "conv_dim", default=hidden)
        return RecurrentState(width, _size(config, "conv_L_cache"), 0, 0, None, 4 * width)
    if family in ("jamba", "mamba", "falcon_mamba"):
        return _mamba1(config, hidden)
    if any(key in config for key in _MAMBA2_HEADS):
        return _mamba2(config, hidden)
    if "attn_type_list" in config:  # MiniMax's lightning attention
        return RecurrentState(0, 1, heads, head_dim * head_dim, "float32", 5 * heads * head_dim)
    value_heads = max(1, heads * head_dim // _GDN_HEAD_DIM)
    keys = min(_GDN_KEY_HEADS, value_heads) * _GDN_HEAD_DIM
    values = value_heads * _GDN_HEAD_DIM
    like = _gated_delta_net(keys, values, value_heads, _GDN_HEAD_DIM)
    return replace(like, state_dtype="float32", assumed=True)


def _gated_delta_net(keys: int, values: int, value_heads: int, key_dim: int) -> RecurrentState:
    return RecurrentState(
        conv_channels=2 * keys + values,
        conv_kernel=_CONV_KERNEL,
        state_heads=value_heads,
        state_elements_per_head=values // value_heads * key_dim,
        state_dtype=None,
        projected_channels=2 * keys + 3 * values,
    )


def _size(config: Config, *keys: str, default: int | None = None) -> int:
    found = next((config[key] for key in keys if config.get(key)), default)
    if not is_size(found):
        raise ValueError(f"{keys[0]}: {shown(found)}")
    return int(found or 0)


def _expanded(config: Config, hidden: int, *keys: str) -> int:
    found = next((config[key] for key in keys if key in config), 2)
    return int(float(found) * hidden)


def _qwen(config: Config) -> RecurrentState:
    value_heads = _size(config, "linear_num_value_heads")
    values = value_heads * _size(config, "linear_value_head_dim")
    key_dim = _size(config, "linear_key_head_dim")
    keys = _size(config, "linear_num_key_heads") * key_dim
    return replace(
        _gated_delta_net(keys, values, value_heads, key_dim),
        conv_kernel=_size(config, "linear_conv_kernel_dim", default=_CONV_KERNEL),
        state_dtype=config.get("mamba_ssm_dtype"),
    )


def _kimi(config: Config) -> RecurrentState:
    linear = config["linear_attn_config"]
    heads, head_dim = _size(linear, "num_heads"), _size(linear, "head_dim")
    return RecurrentState(
        conv_channels=3 * heads * head_dim,
        conv_kernel=_size(linear, "short_conv_kernel_size", default=_CONV_KERNEL),
        state_heads=heads,
        state_elements_per_head=head_dim**2,
        state_dtype="float32",
        projected_channels=4 * heads * head_dim,
        checkpoints=1,
    )


def _mamba1(config: Config, hidden: int) -> RecurrentState:
    inner = config.get("intermediate_size")
    if config.get("model_type") == "jamba" or not inner:
        inner = _expanded(config, hidden, "mamba_expand", "expand")
    else:
        inner = _size(config, "intermediate_size")
    size = _size(config, "mamba_d_state", "state_size", default=16)
    kernel = _size(config, "mamba_d_conv", "conv_kernel", default=_CONV_KERNEL)
    return RecurrentState(inner, kernel, inner, size, None, 3 * inner)


def _mamba2(config: Config, hidden: int) -> RecurrentState:
    heads = _size(config, *_MAMBA2_HEADS)
    said = next((config[key] for key in _MAMBA2_HEAD_DIMS if config.get(key)), None)
    expanded = _expanded(config, hidden, "mamba_expand") // heads
    head_dim = int(said) if said is not None and is_size(said) else expanded  # "auto"
    size = _size(config, "mamba_d_state", "ssm_state_size", "state_size", default=128)
    groups = _size(config, "mamba_n_groups", "n_groups", "mamba_ngroups", default=1)
    return RecurrentState(
        conv_channels=heads * head_dim + 2 * groups * size,
        conv_kernel=_size(config, "mamba_d_conv", "conv_kernel", default=_CONV_KERNEL),
        state_heads=heads,
        state_elements_per_head=head_dim * size,
        state_dtype=config.get("mamba_ssm_cache_dtype")
        or config.get("mamba_ssm_dtype")
        or ("float32" if config.get("model_type") == "nemotron_h" else None),
        projected_channels=3 * heads * head_dim + 2 * groups * size,
        checkpoints=1,
        grouped_channels=2 * groups * size,
        groups=groups,
    )
