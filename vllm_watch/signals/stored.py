"""Reads values back from disk and checks them.

For a damaged entry, all restoring functions raise one of DAMAGE.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)

Stored = Mapping[str, Any]


def version(state: Stored, known: int) -> None:
    """Raise ValueError if the state has another version."""
    if state["version"] != known:
        raise ValueError(f"it has version {state['version']!r}, and {known} is known")


def number(value: Any, least: float | None = None) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise TypeError(f"{value!r:.40} is not a number")
    if least is not None and value < least:
        raise ValueError(f"{value!r:.40} is below {least:g}")
    return float(value)


def number_or_none(value: Any, least: float | None = None) -> float | None:
    """Return a finite number, or None."""
    return None if value is None else number(value, least)


def numbers(value: Any, count: int | None = None) -> list[float]:
    """Return finite numbers."""
    found = [number(each) for each in _list(value)]
    if count is not None and len(found) != count:
        raise ValueError(f"{len(found)} numbers in place of {count}")
    return found


def numbers_or_none(value: Any, least: int) -> tuple[float | None, ...]:
    """Return at least `least` values, each a finite number or None."""
    found = tuple(number_or_none(each) for each in _list(value))
    if len(found) < least:
        raise ValueError(f"{len(found)} numbers in place of {least} or more")
    return found


def count(value: Any) -> int:
    """Return an integer, 0 or more."""
    return int(number(value, 0.0))


def flag(value: Any) -> bool:
    """Return a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def text(value: Any) -> str:
    """Return a str."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def text_or_none(value: Any) -> str | None:
    """Return a str, or None."""
    return None if value is None else text(value)


def texts(value: Any) -> tuple[str, ...]:
    """Return strings."""
    return tuple(text(each) for each in _list(value))


def mapping(value: Any) -> Stored:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} is not a mapping")
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r:.40} is not a list")
    return value
