"""Bytes that one parameter of a layer's matrices takes under each quantization, scales included.

Source: the formats themselves: a group of `group_size` weights shares a 16-bit scale and, where it is
asymmetric, a zero point of as many bits as a weight.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DEFAULT_GROUP = 128
_SCALE_BITS = 16


@dataclass(frozen=True, slots=True)
class Quantization:
    """What the layers' matrices become."""

    name: str
    bytes_per_weight: float | None
    """None: not quantized, the model's dtype holds."""
    only_experts: bool = False
    """MXFP4 checkpoints leave attention as it is."""
    tables: bool = False
    """Embeddings and output head, too."""


NONE = Quantization("none", None)
ONLINE = ("fp8", "bitsandbytes")
"""Those that vLLM makes itself of a checkpoint that has none; others need a checkpoint of their own."""
_BY_NAME: dict[str, float] = {
    "fp8": 1.0, "fbgemm_fp8": 1.0, "ptpc_fp8": 1.0, "modelopt": 1.0, "int8": 1.0, "w8a8": 1.0,
    "experts_int8": 1.0, "tpu_int8": 1.0, "bitsandbytes_8bit": 1.0, "petit_nvfp4": 0.5625,
    "nvfp4": 0.5625, "modelopt_fp4": 0.5625, "modelopt_mxfp8": 1.03125, "mxfp4": 0.53125,
    "mxfp8": 1.03125, "deepspeedfp": 1.0, "compressed-tensors w8a8": 1.0,
}  # fmt: skip
_FOUR_BIT = ("awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_marlin_24", "auto-round", "inc", "hqq",
             "marlin", "squeezellm", "moe_wna16", "quark", "aqlm", "w4a16")  # fmt: skip
# Names that say their format without being one of vLLM's.
_PATTERNS = (
    (r"nvfp4|fp4", 0.5625),
    (r"w4a|int4|4bit|4-bit|awq|gptq|autoround", 0.53),
    (r"fp8|int8|w8a|8bit|8-bit", 1.0),
)
_GGUF_BITS = 4.85  # Q4_K_M, the usual one; a GGUF file's own size says better
_NF4_GROUP, _NF4_SCALE_BITS = 64, 8  # bitsandbytes with double quantization


def find_quantization(flag: str | None, config: Mapping[str, Any] | None) -> Quantization:
    """From the config of the checkpoint where it has one, else from --quantization."""
    if config:
        return _from_config(config)
    if flag is None:
        return NONE
    name = flag.lower()
    if name in _BY_NAME:
        return Quantization(name, _BY_NAME[name], only_experts=name == "mxfp4")
    if name in _FOUR_BIT:
        return Quantization(name, _grouped(4, _DEFAULT_GROUP, symmetric=False))
    if name == "bitsandbytes":
        return Quantization(name, _nf4())
    if name == "gguf":
        return Quantization(name, _GGUF_BITS / 8, tables=True)
    for pattern, guessed in _PATTERNS:
        if re.search(pattern, name):
            return Quantization(name, guessed)
    # What is newer than this table, or says nothing by itself (compressed-tensors): not shrunk.
    return Quantization(name, None)


def _grouped(bits: float, group: int, *, symmetric: bool) -> float:
    per_group = _SCALE_BITS + (0 if symmetric else bits)
    return (bits + (per_group / group if group > 0 else 0)) / 8


def _nf4() -> float:
    return (4 + _NF4_SCALE_BITS / _NF4_GROUP) / 8


def _from_config(config: Mapping[str, Any]) -> Quantization:
    method = str(config.get("quant_method") or config.get("quant_algo") or "").lower()
    if method == "bitsandbytes":
        return Quantization(method, _nf4() if config.get("load_in_4bit", True) else 1.0)
    if method == "compressed-tensors":
        return _compressed(config)
    if method.startswith("modelopt") or "producer" in config:
        algorithm = str(
            config.get("quant_algo") or config.get("quantization", {}).get("quant_algo", "")
        ).upper()
        return Quantization(f"modelopt {algorithm}".strip(), 0.5625 if "FP4" in algorithm else 1.0)
    bits = config.get("bits") or config.get("w_bit")
    if isinstance(bits, int | float) and 0 < bits <= 8:  # noqa: PLR2004 - no format goes above a byte
        group = config.get("group_size", config.get("q_group_size", _DEFAULT_GROUP))
        symmetric = bool(config.get("sym", not config.get("zero_point", False)))
        return Quantization(f"{method} {bits} bit", _grouped(bits, int(group), symmetric=symmetric))
    for name, size in _BY_NAME.items():
        if re.fullmatch(re.escape(name), method):
            return Quantization(method, size, only_experts=name == "mxfp4")
    return (
        Quantization(method, _grouped(4, _DEFAULT_GROUP, symmetric=False))
        if method in _FOUR_BIT
        else NONE
    )


def _compressed(config: Mapping[str, Any]) -> Quantization:
    groups = config.get("config_groups")
    if isinstance(groups, Mapping):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            if isinstance(weights, Mapping) and isinstance(weights.get("num_bits"), int):
                bits, size = weights["num_bits"], weights.get("group_size") or -1
                scale_bits_are_bytes = weights.get("type") == "float" and bits == 4  # noqa: PLR2004 - NVFP4
                if scale_bits_are_bytes:
                    return Quantization("compressed-tensors nvfp4", 0.5625)
                symmetric = bool(weights.get("symmetric", True))
                return Quantization(
                    f"compressed-tensors {bits} bit", _grouped(bits, int(size), symmetric=symmetric)
                )
    return Quantization("compressed-tensors", 1.0)
