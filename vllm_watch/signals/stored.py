"""Exports objects as plain values, and reads values back from disk and checks them.

For a damaged entry, all restoring functions raise one of DAMAGE.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, ClassVar, Protocol, Self, TypeVar

DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)

Stored = Mapping[str, Any]

Fields = Mapping[str, Callable[[Any], Any]]
"""Key in the state → check of its value, which raises one of DAMAGE. The key `name` belongs to the
attribute `_name` or, if there is none, to `name`."""


def export(owner: object, fields: Fields) -> dict[str, Any]:
    """Return these attributes as plain values."""
    return {key: plain(getattr(owner, _attribute(owner, key))) for key in fields}


def checked(state: Stored, fields: Fields) -> dict[str, Any]:
    """Return the values of these keys."""
    return {key: check(state[key]) for key, check in fields.items()}


def plain(value: Any) -> Any:
    """Return a copy with lists in place of other sequences and of sets, and with the state of each part."""
    if hasattr(value, "export_state"):
        return value.export_state()
    if isinstance(value, list | tuple | deque):
        return [plain(each) for each in value]
    return sorted(value) if isinstance(value, set) else value


class Kept:
    """Base of objects with attributes that survive a restart of the watcher, as listed in `KEPT`."""

    __slots__ = ()
    KEPT: ClassVar[Fields] = {}
    LATER: ClassVar[tuple[str, ...]] = ()
    """Keys that states of older releases lack. Their attributes then stay as they are."""

    def export_state(self) -> dict[str, Any]:
        return export(self, self.KEPT)

    def restore(self, state: Stored) -> None:
        """Restore the attributes. If one is damaged, change nothing and raise one of DAMAGE."""
        for name, value in self.read(state).items():
            setattr(self, name, value)

    def read(self, state: Stored) -> dict[str, Any]:
        """Return the values by attribute."""
        return {
            _attribute(self, key): check(state[key])
            for key, check in self.KEPT.items()
            if key in state or key not in self.LATER
        }

    @classmethod
    def restored(cls, state: Stored) -> Self:
        new = cls()
        new.restore(state)
        return new


def _attribute(owner: object, key: str) -> str:
    return "_" + key if hasattr(owner, "_" + key) else key


class Part(Protocol):
    """A part with a state of its own."""

    def restore(self, state: Any) -> None:
        """Restore the state. May raise one of DAMAGE."""


P = TypeVar("P", bound=Part)


def part(make: Callable[[], P]) -> Callable[[Any], P]:
    """Return the check of a part that `make` makes."""

    def check(state: Any) -> P:
        made = make()
        made.restore(state)
        return made

    return check


def last(count: int) -> Callable[[Any], deque[float]]:
    """Return the check of the last `count` numbers."""
    return lambda state: deque(numbers(state), maxlen=count)


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


def pair(value: Any) -> tuple[float, float]:
    """Return two finite numbers."""
    first, second = numbers(value, 2)
    return first, second


def numbers_or_none(value: Any, least: int) -> tuple[float | None, ...]:
    """Return at least `least` values, each a finite number or None."""
    found = tuple(number_or_none(each) for each in _list(value))
    if len(found) < least:
        raise ValueError(f"{len(found)} numbers in place of {least} or more")
    return found


def amount(value: Any) -> float:
    """Return a finite number, 0 or more."""
    return number(value, 0.0)


def count(value: Any) -> int:
    """Return an integer, 0 or more."""
    return int(number(value, 0.0))


def counts(value: Any) -> dict[str, int]:
    """Return integers, 0 or more, by name."""
    return {text(name): count(each) for name, each in mapping(value).items()}


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
