"""Computes the KV cache size in tokens from vLLM's configuration labels."""

from collections.abc import Mapping


def kv_cache_tokens(config: Mapping[str, str] | None, engines: int) -> float | None:
    """Return one engine's KV cache tokens, or None.

    Before vLLM 0.24.0, each engine reports the sum of all `engines`. V1 up to 0.8.5 writes "None",
    because the number is not known yet.
    """
    if config is None:
        return None
    said = _number(config.get("kv_cache_size_tokens"))
    if said is not None:
        return said
    blocks = _number(config.get("num_gpu_blocks"))
    block_size = _number(config.get("block_size"))
    if blocks is None or block_size is None:
        return None
    return blocks * block_size / max(1, engines)


def longest_request_tokens(
    config: Mapping[str, str] | None, max_model_len: float | None
) -> float | None:
    """Return the maximum tokens of a request, or None. vLLM reports this number since 0.24.0."""
    told = config or {}
    size = _number(told.get("kv_cache_size_tokens"))
    held = _number(told.get("kv_cache_max_concurrency"))
    return max_model_len or (size / held if size and held else None)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None
