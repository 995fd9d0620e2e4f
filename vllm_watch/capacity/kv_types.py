"""Bytes per head and token for each --kv-cache-dtype. Source: vLLM's CacheDType and the pages of its attention backends.

Per-token-head types add a scale; NVFP4 packs two values into a byte, and adds a scale byte per 16 values.
"""

from fractions import Fraction

from vllm_watch.capacity.units import ceil_div, shown
from vllm_watch.errors import WatchError

# Bytes per element.
MODEL_DTYPES = {
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4, "float64": 8,
}  # fmt: skip
_ELEMENT: dict[str, int | Fraction] = {
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1,
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "fp32": 4,
    "int8_per_token_head": 1, "fp8_per_token_head": 1, "int4_per_token_head": Fraction(1, 2),
    "nvfp4": Fraction(9, 16), "fp8_ds_mla": 1,
}  # fmt: skip
_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "nvfp4_4over6": "nvfp4",
    "int4": "int4_per_token_head",
}
# Bits per value of K and of V. TurboQuant packs both, and adds a norm, scale and zero point.
_PACKED = {
    "turboquant_k8v4": (8, 4), "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4), "turboquant_3bit_nc": (3, 3),
}  # fmt: skip
_KEY_NORM_BYTES, _VALUE_SCALES_BYTES, _FP8_BITS = 2, 4, 8
SCALE_BYTES = 4  # per token and head, K and V have one float32 each
DS_MLA_ROW_BYTES = 656  # 512 fp8 values, 4 scales of 4 bytes, 64 rotary values of 2 bytes


def key_value_bytes(head_dim: int, kv_dtype: str, model_dtype: str) -> int:
    """Return one head's bytes of K and V for one token."""
    if kv_dtype not in _PACKED:
        return 2 * head_bytes(head_dim, kv_dtype, model_dtype)
    key_bits, value_bits = _PACKED[kv_dtype]
    norm = 0 if key_bits == _FP8_BITS else _KEY_NORM_BYTES
    packed = ceil_div(head_dim * key_bits, 8) + norm + ceil_div(head_dim * value_bits, 8)
    return ceil_div(packed + _VALUE_SCALES_BYTES, 2) * 2


def head_bytes(elements: int, kv_dtype: str, model_dtype: str) -> int:
    """Return one head's bytes of K or V for one token. Raises WatchError if the type is unknown."""
    kv_dtype = _ALIASES.get(kv_dtype, kv_dtype)
    if kv_dtype == "auto":
        return elements * dtype_bytes(model_dtype)
    if kv_dtype in _PACKED:
        return key_value_bytes(elements, kv_dtype, model_dtype) // 2
    if kv_dtype not in _ELEMENT:
        raise WatchError(
            f"--kv-cache-dtype {shown(kv_dtype)} is not known here",
            f"one of {', '.join(('auto', *_ELEMENT, *_PACKED))}",
        )
    scale = SCALE_BYTES if kv_dtype.endswith("_per_token_head") else 0
    return int(elements * _ELEMENT[kv_dtype]) + scale


def dtype_bytes(model_dtype: str) -> int:
    """Return bytes per element. Raises WatchError if the dtype is unknown."""
    model_dtype = _ALIASES.get(model_dtype, model_dtype)
    if model_dtype not in MODEL_DTYPES:
        raise WatchError(
            f"--dtype {shown(model_dtype)} is not known here", f"one of {', '.join(MODEL_DTYPES)}"
        )
    return MODEL_DTYPES[model_dtype]


def check_config_dtype(dtype: str) -> None:
    """Refuse an unknown torch_dtype."""
    if _ALIASES.get(dtype, dtype) not in MODEL_DTYPES:
        raise WatchError(f"torch_dtype: {shown(dtype)} in the config is not known here", f"give --dtype: {', '.join(MODEL_DTYPES)}")  # fmt: skip
