"""How many tokens an engine's KV cache holds, from what vLLM says of its configuration."""

from collections.abc import Mapping


def kv_cache_tokens(config: Mapping[str, str] | None, engines: int) -> float | None:
    """Tokens that one engine's KV cache holds; None where vLLM does not say.

    From 0.24.0 `kv_cache_size_tokens` is said, per engine. Before, it is blocks × tokens a block; with
    data parallelism vLLM sums the blocks of all `engines` and says that sum for each (core_client.py).
    Up to 0.8.5 V1 wrote the label before the engine had counted: "None".
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
    """Tokens of the longest request that is accepted; None where vLLM does not say. From 0.24.0 it says how many of them
    the KV cache holds at once."""
    told = config or {}
    size, held = (
        _number(told.get("kv_cache_size_tokens")),
        _number(told.get("kv_cache_max_concurrency")),
    )
    return max_model_len or (size / held if size and held else None)


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None
