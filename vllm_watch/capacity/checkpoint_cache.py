"""A checkpoint's own KV cache type."""

from collections.abc import Mapping
from typing import Any

# Source: vLLM's get_kv_cache_quant_algo_string and Attention.
_TYPES = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def checkpoint_cache_dtype(quantization: Mapping[str, Any]) -> str | None:
    """Return the type, or None for the model's dtype."""
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
    return _TYPES.get(found.lower()) if isinstance(found, str) else None


def _of_scheme(scheme: Mapping[str, Any]) -> str | None:
    if scheme.get("type") != "float":
        return None
    bits = scheme.get("num_bits")
    if bits == 8 and scheme.get("dynamic") is False:  # noqa: PLR2004
        return "fp8_e4m3"
    return "nvfp4" if bits == 4 else None  # noqa: PLR2004
