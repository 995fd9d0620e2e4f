"""Find the kind of each layer in any of the config formats."""

from collections.abc import Callable, Mapping
from typing import Any

from vllm_watch.capacity.model import LayerKind

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
    numbers = config.get("attn_type_list")  # MiniMax: 0 linear, 1 softmax
    if isinstance(numbers, list | tuple) and numbers:
        return [_FULL if number == 1 else _STATE for number in numbers]
    windows = config.get("hybrid_layer_pattern")  # MiMo-V2: 1 sliding, 0 full
    if isinstance(windows, list | tuple) and windows:
        return [_SLIDING if number == 1 else _FULL for number in windows]
    return None


def _override_pattern(config: Config, _count: int) -> list[LayerKind] | None:
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return None
    return [_OVERRIDE_PATTERN.get(letter, _FULL) for letter in pattern]


def _linear_config(config: Config, count: int) -> list[LayerKind] | None:
    linear = config.get("linear_attn_config")  # Kimi Linear; its layers count from 1
    if not isinstance(linear, Mapping) or not linear.get("full_attn_layers"):
        return None
    full = set(linear["full_attn_layers"])
    return [_FULL if index + 1 in full else _STATE for index in range(count)]


def _indices(config: Config, count: int) -> list[LayerKind] | None:
    indices = config.get("attn_layer_indices") or config.get("full_attn_idxs")
    if not isinstance(indices, list | tuple):
        return None
    full = set(indices)
    return [_FULL if index in full else _STATE for index in range(count)]


def _jamba(config: Config, count: int) -> list[LayerKind] | None:
    period, offset = config.get("attn_layer_period"), config.get("attn_layer_offset")
    if not period or offset is None:
        return None
    return [_FULL if index % period == offset else _STATE for index in range(count)]


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
    _listed, _override_pattern, _linear_config, _indices, _jamba, _llama4, _rhythm, _all_alike,
)  # fmt: skip
