"""Convert CPU waits to and from a list in a trace line, with one object per engine."""

from typing import Any

from vllm_watch.samples.cpu import EngineCpu

_NUMBERS = ("quota_periods", "throttled_periods")


def from_json(entries: Any) -> tuple[EngineCpu, ...] | None:
    """Raises ValueError."""
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise ValueError("cpu: not a list")  # noqa: TRY004 - one kind of error for damaged lines
    return tuple(_sample(entry) for entry in entries)


def _sample(entry: Any) -> EngineCpu:
    if not isinstance(entry, dict):
        raise ValueError("cpu: an entry is not an object")  # noqa: TRY004 - as above
    engine, waited = entry.get("engine"), _number(entry, "waited_seconds")
    if not isinstance(engine, str) or waited is None:
        raise ValueError("cpu: an entry without engine or waited_seconds")
    pid = _number(entry, "pid")
    return EngineCpu(
        engine=engine, waited_seconds=waited, pid=None if pid is None else int(pid),
        name=_text(entry, "name"), core=_text(entry, "core"), stopped=_text(entry, "stopped"),
        **{key: _number(entry, key) for key in _NUMBERS},
    )  # fmt: skip


def _text(entry: dict[str, Any], key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _number(entry: dict[str, Any], key: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e18:  # noqa: PLR2004
        raise ValueError(f"cpu: {key} is {str(value)[:40]!r}, not a count")
    return value


def to_json(samples: tuple[EngineCpu, ...] | None) -> dict[str, Any]:
    """Return the `cpu` entry of a trace line, or an empty dict if the waits are unknown."""
    if samples is None:
        return {}
    names = EngineCpu.__slots__
    return {
        "cpu": [
            {name: value for name in names if (value := getattr(each, name)) is not None}
            for each in samples
        ]
    }
