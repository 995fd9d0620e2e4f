"""Find the bytes per parameter of each quantization, from the definitions of the formats.

A group of weights shares a scale of 16 bits, or 8 bits in MXFP4, MXFP8 and NVFP4. Asymmetric
formats add a zero point as wide as a weight.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vllm_watch.capacity.units import is_size, shown

_DEFAULT_GROUP = 128
_SCALE_BITS, _SMALL_SCALE_BITS = 16, 8
_BITS_MAX = 32
_SMALL_SCALE_GROUPS = (16, 32)  # NVFP4, then MXFP4 and MXFP8


@dataclass(frozen=True, slots=True)
class Quantization:
    """Bytes per weight. None for weights in the model's dtype."""

    name: str
    dense: float | None
    """MLPs and shared experts."""
    attention: float | None
    experts: float | None
    tables: float | None = None
    """Embeddings and output head."""

    @property
    def smallest(self) -> float | None:
        sizes = (self.dense, self.attention, self.experts, self.tables)
        return min((each for each in sizes if each is not None), default=None)


def _all(name: str, size: float | None) -> Quantization:
    return Quantization(name, size, size, size)


NONE = _all("none", None)
ONLINE = ("fp8", "bitsandbytes")
"""Methods that vLLM applies while loading."""
_NVFP4, _MXFP4, _MXFP8 = 0.5625, 0.53125, 1.03125
_INT4 = (4 + (_SCALE_BITS + 4) / _DEFAULT_GROUP) / 8
_BY_NAME: dict[str, float] = {
    "fp8": 1.0, "fbgemm_fp8": 1.0, "ptpc_fp8": 1.0, "modelopt": 1.0, "int8": 1.0, "w8a8": 1.0,
    "experts_int8": 1.0, "tpu_int8": 1.0, "bitsandbytes_8bit": 1.0, "petit_nvfp4": _NVFP4,
    "nvfp4": _NVFP4, "modelopt_fp4": _NVFP4, "modelopt_mxfp8": _MXFP8, "mxfp4": _MXFP4,
    "mxfp8": _MXFP8, "deepspeedfp": 1.0, "compressed-tensors w8a8": 1.0,
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_marlin_24", "auto-round", "inc", "hqq",
                     "marlin", "squeezellm", "moe_wna16", "quark", "aqlm", "w4a16"), _INT4),
}  # fmt: skip
# Names of formats in other libraries.
_PATTERNS = (
    (r"mxfp8", _MXFP8),
    (r"mxfp4|mx_?fp4", _MXFP4),
    (r"nvfp4|fp4", _NVFP4),
    (r"w4a|int4|4bit|4-bit|awq|gptq|autoround", 0.53),
    (r"fp8|float8|int8|w8a|8bit|8-bit", 1.0),
)
# DeepSeek V4's `expert_dtype`.
_EXPERT_DTYPES = {"fp4": _MXFP4, "mxfp4": _MXFP4, "nvfp4": _NVFP4, "fp8": 1.0, "int8": 1.0}
_FLOAT_4 = {"num_bits": 4, "group_size": 16, "type": "float"}
_FLOAT_8 = {"num_bits": 8, "type": "float"}
_GGUF_BITS = 4.85  # Q4_K_M
_NF4 = (4 + _SMALL_SCALE_BITS / 64) / 8  # bitsandbytes with double quantization
_KEPT_KEYS = ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers", "exclude")
_ATTENTION = re.compile(r"(attn|attention)(\W|$)")


def find_quantization(flag: str | None, checkpoint: Quantization | None) -> Quantization:
    """Return the checkpoint's quantization. If it has none, return the one named by --quantization."""
    if checkpoint is not None:
        return checkpoint
    if flag is None:
        return NONE
    name = flag.lower()
    if name in _BY_NAME:
        return _named(name)
    if name == "bitsandbytes":
        return _all(name, _NF4)
    if name == "gguf":
        return replace(_all(name, _GGUF_BITS / 8), tables=_GGUF_BITS / 8)
    # A name without a known format counts as unquantized.
    return _all(name, _by_words(name))


def read_quantization(config: Mapping[str, Any], *, expert_dtype: Any, layers: int) -> Quantization:
    """Read `quantization_config`. Raises an error if a value is invalid."""
    found = _of_method(config)
    if expert_dtype is not None:
        word = str(expert_dtype).lower()
        size = _EXPERT_DTYPES.get(word, _by_words(word))
        found = replace(found, name=f"{found.name}, experts {word}", experts=size)
    if found.attention is not None and _keeps_attention(config, layers):
        found = replace(found, attention=None)
    return found


def _named(name: str) -> Quantization:
    if name == "mxfp4":
        return Quantization(name, None, None, _MXFP4)
    return _all(name, _BY_NAME[name])


def _by_words(text: str) -> float | None:
    return next((size for pattern, size in _PATTERNS if re.search(pattern, text)), None)


def _grouped(bits: float, group: int, *, symmetric: bool, scale_bits: int = _SCALE_BITS) -> float:
    per_group = scale_bits + (0 if symmetric else bits)
    return (bits + (per_group / group if group > 0 else 0)) / 8


def _of_method(config: Mapping[str, Any]) -> Quantization:
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    if method in _READERS:
        return _READERS[method](config)
    if isinstance(config.get("config_groups"), Mapping):
        return _compressed(method or "compressed-tensors", config["config_groups"])
    if method == "compressed-tensors":
        return _all(method, _by_words(str(config.get("format") or "").lower()) or 1.0)
    if method.startswith("modelopt") or "producer" in config:
        return _modelopt(config)
    bits = config.get("bits") or config.get("w_bit")
    if isinstance(bits, int | float) and 0 < bits <= 8:  # noqa: PLR2004
        group = config.get("group_size", config.get("q_group_size", _DEFAULT_GROUP))
        symmetric = bool(config.get("sym", not config.get("zero_point", False)))
        return _all(f"{method} {bits} bit", _grouped(bits, int(group), symmetric=symmetric))
    if method in _BY_NAME:
        return _named(method)
    return _all(method, None) if method else NONE


def _compressed(method: str, groups: Mapping[str, Any]) -> Quantization:
    """Read the groups. The target "Linear" includes all modules. Any other target contains a module's name."""
    sizes: dict[str, float] = {}
    names: list[str] = []
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping) or not isinstance(weights.get("num_bits"), int):
            continue
        name, size = _format(weights)
        names.append(name)
        for part in _parts(group.get("targets")):
            sizes.setdefault(part, size)
    if not names:
        return _all(method, 1.0)
    rest = sizes.get("all")
    return Quantization(
        f"{method} {' and '.join(dict.fromkeys(names))}",
        dense=sizes.get("dense", rest),
        attention=sizes.get("attention", rest),
        experts=sizes.get("experts", rest),
    )


def _parts(targets: Any) -> Iterable[str]:
    words = [str(each) for each in targets] if isinstance(targets, list | tuple) else []
    found = {
        "attention" if _ATTENTION.search(each)
        else "experts" if re.search(r"(?<!shared_)expert", each)
        else "dense" if "mlp" in each
        else "all"
        for each in words
    }  # fmt: skip
    return found or {"all"}


def _format(weights: Mapping[str, Any]) -> tuple[str, float]:
    bits, group = weights["num_bits"], int(weights.get("group_size") or -1)
    if not 0 < bits <= _BITS_MAX:
        raise ValueError(f"num_bits {shown(bits)}")
    small = weights.get("type") == "float" and group in _SMALL_SCALE_GROUPS
    symmetric = bool(weights.get("symmetric", True))
    size = _grouped(bits, group, symmetric=symmetric, scale_bits=_SMALL_SCALE_BITS if small else _SCALE_BITS)  # fmt: skip
    kind = "fp" if weights.get("type") == "float" else "int"
    return f"{kind}{bits}", size


def _modelopt(config: Mapping[str, Any]) -> Quantization:
    inner = config.get("quantization")
    inner = inner if isinstance(inner, Mapping) else config
    layers = inner.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:  # MIXED_PRECISION
        groups = {
            name: {"targets": [name], "weights": _FLOAT_4 if "4" in _algorithm(each) else _FLOAT_8}
            for name, each in layers.items()
        }
        return _compressed("modelopt", groups)
    algorithm = _algorithm(inner)
    return _all(f"modelopt {algorithm}".strip(), _by_words(algorithm.lower()) or 1.0)


def _algorithm(config: Any) -> str:
    return str(config.get("quant_algo") or "").upper() if isinstance(config, Mapping) else ""


def _quark(config: Mapping[str, Any]) -> Quantization:
    """Read AMD's format, in which `fp4` means MXFP4."""
    whole = config.get("global_quant_config")
    weights = whole.get("weight") if isinstance(whole, Mapping) else None
    if not isinstance(weights, Mapping):
        return _named("quark")
    word = str(weights.get("dtype") or "").lower()
    size = _MXFP4 if word == "fp4" else _by_words(word) or 1.0
    return _all(f"quark {word}".strip(), size)


def _keeps_attention(config: Mapping[str, Any], layers: int) -> bool:
    named: set[str] = set()
    inner = config.get("quantization")
    for key in _KEPT_KEYS:
        words = config.get(key) or (inner.get(key) if isinstance(inner, Mapping) else None)
        for word in words if isinstance(words, list | tuple) else ():
            text = str(word)
            if not _ATTENTION.search(text) or text.endswith("norm"):
                continue
            number = re.search(r"layers\.(\d{1,5})\.", text)
            if number is None:
                return True
            named.add(number[1])
    return 2 * len(named) >= layers


_READERS: dict[str, Callable[[Mapping[str, Any]], Quantization]] = {
    "bitsandbytes": lambda config: _all("bitsandbytes", _NF4 if config.get("load_in_4bit", True) else 1.0),
    "torchao": lambda config: _all("torchao", _by_words(str(config.get("quant_type")).lower()) or 1.0),
    "quark": _quark,
}  # fmt: skip


def weight_block(quantization: Mapping[str, Any]) -> int | None:
    """Return the side of the fp8 blocks."""
    sides = quantization.get("weight_block_size")
    if quantization.get("quant_method") != "fp8" or not isinstance(sides, list | tuple):
        return None
    return math.lcm(*sides) if sides and all(is_size(each, 1 << 20) for each in sides) else None


# Source: vLLM's get_kv_cache_quant_algo_string and Attention.
_CACHE_TYPES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def checkpoint_cache_dtype(quantization: Mapping[str, Any]) -> str | None:
    """Return the KV cache type that the checkpoint names, or None for the model's dtype."""
    method = str(quantization.get("quant_method") or "")
    if method == "compressed-tensors":
        return "fp8" if quantization.get("kv_cache_scheme") else None
    if not method.startswith("modelopt"):
        return None
    inner = quantization.get("quantization")
    places = [inner, quantization] if isinstance(inner, Mapping) else [quantization]
    named = (each.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo") for each in places)
    found = next((each for each in named if each), None)
    if isinstance(found, Mapping):
        return _of_scheme(found)
    return _CACHE_TYPES.get(found.lower()) if isinstance(found, str) else None


def _of_scheme(scheme: Mapping[str, Any]) -> str | None:
    if scheme.get("type") != "float":
        return None
    bits = scheme.get("num_bits")
    if bits == 8 and scheme.get("dynamic") is False:  # noqa: PLR2004
        return "fp8_e4m3"
    return "nvfp4" if bits == 4 else None  # noqa: PLR2004
