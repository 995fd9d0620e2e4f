"""Reads values back from disk: plain numbers and texts, each checked before it is used.

What comes from a disk may be damaged or another program's. Whoever restores reads everything first and
changes itself last, so that a damaged entry is left out whole.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading a damaged entry raises."""

Stored = Mapping[str, Any]


def version(state: Stored, known: int) -> None:
    """Raise ValueError for an entry that was written in another form than `known`."""
    if state["version"] != known:
        raise ValueError(f"it has version {state['version']!r}, and {known} is known")


def number(value: Any, least: float | None = None) -> float:
    """A finite number, not below `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise TypeError(f"{value!r:.40} is not a number")
    if least is not None and value < least:
        raise ValueError(f"{value!r:.40} is below {least:g}")
    return float(value)


def number_or_none(value: Any, least: float | None = None) -> float | None:
    """The same, or None."""
    return None if value is None else number(value, least)


def numbers(value: Any, count: int | None = None) -> list[float]:
    """A list of finite numbers, `count` of them."""
    found = [number(each) for each in _list(value)]
    if count is not None and len(found) != count:
        raise ValueError(f"{len(found)} numbers in place of {count}")
    return found


def count(value: Any) -> int:
    """A count: 0 or more."""
    return int(number(value, 0.0))


def flag(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} is neither true nor false")
    return value


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def text_or_none(value: Any) -> str | None:
    """The same, or None."""
    return None if value is None else text(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text(each) for each in _list(value))


def mapping(value: Any) -> Stored:
    """What is kept under names."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r:.40} is not a mapping")
    return value


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r:.40} is not a list")
    return value
