"""How many bytes one head of one token takes under each --kv-cache-dtype.

Source: vLLM's CacheDType and the pages of its attention backends (per-token-head types add a scale,
NVFP4 packs two values to a byte with one scale byte to 16, fp8_ds_mla is a row of 656 bytes).
"""

from fractions import Fraction

from vllm_watch.errors import WatchError

# The dtype of the model, in bytes per element.
MODEL_DTYPES = {
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "float": 4, "float64": 8,
}  # fmt: skip
_ELEMENT: dict[str, int | Fraction] = {
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1,
    "bfloat16": 2, "float16": 2, "half": 2, "float32": 4, "fp32": 4,
    "int8_per_token_head": 1, "fp8_per_token_head": 1, "int4_per_token_head": Fraction(1, 2),
    "nvfp4": Fraction(9, 16), "fp8_ds_mla": 1,
}  # fmt: skip
SCALE_BYTES = 4  # one float32 per token and head, for K and for V
DS_MLA_ROW_BYTES = 656  # 512 fp8 values, 4 scales of 4 bytes, 64 rotary values of 2 bytes


def known_kv_types() -> tuple[str, ...]:
    """All names that are understood, 'auto' first."""
    return ("auto", *_ELEMENT)


def head_bytes(elements: int, kv_dtype: str, model_dtype: str) -> int:
    """One head's K or V of one token: `elements` values and the scale where the type keeps one."""
    if kv_dtype == "auto":
        return elements * dtype_bytes(model_dtype)
    if kv_dtype not in _ELEMENT:
        raise WatchError(
            f"--kv-cache-dtype {kv_dtype} is not known here",
            f"one of {', '.join(known_kv_types())}",
        )
    scale = SCALE_BYTES if kv_dtype.endswith("_per_token_head") else 0
    return int(elements * _ELEMENT[kv_dtype]) + scale


def dtype_bytes(model_dtype: str) -> int:
    """Bytes per element of the model's dtype."""
    if model_dtype not in MODEL_DTYPES:
        raise WatchError(
            f"--dtype {model_dtype} is not known here", f"one of {', '.join(MODEL_DTYPES)}"
        )
    return MODEL_DTYPES[model_dtype]
