"""The longest context of a model."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_watch.capacity.bounds import NUMBER_MAX, is_size

Config = Mapping[str, Any]

# Source: vLLM's _get_and_verify_max_len.
_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length",
    "max_seq_length", "seq_len",
)  # fmt: skip
_UNSCALED = ("default", "mrope", "su", "longrope", "llama3")
_YARN = ("yarn", "deepseek_yarn")


def positions(config: Config) -> int | None:
    """Return the longest context before rope scaling, in tokens."""
    said = config.get("model_max_length")
    if is_size(said):
        return int(said or 0)
    return min((config[key] for key in _KEYS if is_size(config.get(key))), default=None)


def length_limit(config: Config) -> int | None:
    """Return the longest context that vLLM accepts, in tokens."""
    named = positions(config)
    if named is None or "gemma3" in str(config.get("model_type")):
        return named
    return max((_scaled(each, named) for each in _ropes(config)), default=named)


def _ropes(config: Config) -> Iterator[Config]:
    for key in ("rope_scaling", "rope_parameters"):
        found = config.get(key)
        if isinstance(found, Mapping):
            yield found
            yield from (each for each in found.values() if isinstance(each, Mapping))


def _scaled(rope: Config, named: int) -> int:
    kind, factor = rope.get("rope_type") or rope.get("type") or "default", rope.get("factor")
    if kind in _UNSCALED or not isinstance(factor, int | float) or not 1 <= factor <= NUMBER_MAX:
        return named
    if kind in _YARN:  # releases differ in whether the positions are scaled already
        original = _optional(rope.get("original_max_position_embeddings")) or named
        return min(max(named, int(original * factor)), NUMBER_MAX)
    return min(int(named * factor), NUMBER_MAX)


def _optional(value: Any) -> int | None:
    return value if is_size(value) else None
