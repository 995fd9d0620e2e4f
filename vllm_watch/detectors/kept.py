"""Keeps attributes of detectors across restarts of the watcher, by one table for both ways."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from vllm_watch.signals import stored

Table = Mapping[str, Callable[[Any], Any]]


class Keeps:
    """Has attributes that are kept. The key `name` belongs to the attribute `name`, or to `_name`."""

    __slots__ = ()

    KEPT: ClassVar[Table] = {}
    """Key in the state → function that checks a stored value. It raises one of stored.DAMAGE."""

    LATER: ClassVar[tuple[str, ...]] = ()
    """Keys that states of older releases lack. Their attributes then stay as they are."""

    def export_state(self) -> dict[str, Any]:
        """Return plain values."""
        return {key: _plain(getattr(self, self._attribute(key))) for key in self.KEPT}

    def restore(self, state: stored.Stored) -> None:
        """Set the attributes. If a value is damaged, change nothing and raise one of stored.DAMAGE."""
        for name, value in self.read(state).items():
            setattr(self, name, value)

    def read(self, state: stored.Stored) -> dict[str, Any]:
        """Return the values by attribute."""
        return {
            self._attribute(key): check(state[key])
            for key, check in self.KEPT.items()
            if key in state or key not in self.LATER
        }

    def _attribute(self, key: str) -> str:
        return key if hasattr(self, key) else "_" + key


class Part(Protocol):
    """A part with a state of its own."""

    def restore(self, state: Any) -> None:
        """Restore the state. May raise one of stored.DAMAGE."""


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
    return lambda state: deque(stored.numbers(state), maxlen=count)


def not_negative(value: Any) -> float:
    """Return a finite number, 0 or more."""
    return stored.number(value, 0.0)


def _plain(value: Any) -> Any:
    if hasattr(value, "export_state"):
        return value.export_state()
    if isinstance(value, deque | tuple | list):
        return [_plain(each) for each in value]
    return value
