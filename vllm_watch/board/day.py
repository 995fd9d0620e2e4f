"""Keep a target's worst state for each quarter of an hour of the last day.

A quarter of an hour counts as healthy only if the target was healthy for over half of it.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from vllm_watch.incidents.incident import Incident
from vllm_watch.signals.records import TargetSignals

CELLS = 96
CELL_SECONDS = 900.0
STATES = ("unknown", "healthy", "warning", "critical", "down")
"""States in order of severity."""

_UNKNOWN, _HEALTHY, _WARNING, _CRITICAL, _DOWN = range(len(STATES))
_OF_SEVERITY = {"page": _CRITICAL, "ticket": _WARNING}


def rank(signals: TargetSignals, incidents: Iterable[Incident]) -> int:
    """Return the state as an index of STATES. A target that does not answer is not healthy."""
    found = _HEALTHY if signals.up and signals.state != "unknown" else _UNKNOWN
    for incident in incidents:
        if incident.recovering:
            continue
        severe = _OF_SEVERITY.get(incident.severity, found)
        down = incident.kind == "engine_down" and severe == _CRITICAL
        found = max(found, _DOWN if down else severe)
    return found


@dataclass(frozen=True, slots=True)
class Cells:
    """The states of consecutive time spans. The first span begins at Unix time `t`, and each lasts `seconds`."""

    t: float
    seconds: float
    states: tuple[str, ...]


class Day:
    """The last 24 hours of one target."""

    __slots__ = ("_healthy_s", "_numbers", "_worst")

    def __init__(self) -> None:
        self._numbers = array("q", [-1]) * CELLS  # numbers of time spans, counted from 1970
        self._worst = bytearray(CELLS)
        self._healthy_s = array("f", [0.0]) * CELLS

    def export(self) -> bytes:
        return self._numbers.tobytes() + self._worst + self._healthy_s.tobytes()

    @classmethod
    def restored(cls, data: bytes) -> "Day":
        """Raises ValueError if `data` is malformed."""
        day = cls()
        sizes = (8 * CELLS, 9 * CELLS, 13 * CELLS)
        if len(data) != sizes[-1] or max(data[sizes[0] : sizes[1]]) >= len(STATES):
            raise ValueError("it is not a day")
        day._numbers = array("q", data[: sizes[0]])
        day._worst = bytearray(data[sizes[0] : sizes[1]])
        day._healthy_s = array("f", data[sizes[1] :])
        return day

    def push(self, t: float, found: int, seconds: float) -> None:
        """Record that the state `found` lasted `seconds`."""
        number = int(t // CELL_SECONDS)
        cell = number % CELLS
        if self._numbers[cell] != number:
            self._numbers[cell], self._worst[cell], self._healthy_s[cell] = number, 0, 0.0
        self._worst[cell] = max(self._worst[cell], found)
        if found == _HEALTHY:
            self._healthy_s[cell] += seconds

    def cells(self, t: float) -> Cells:
        last = int(t // CELL_SECONDS)
        first = last - CELLS + 1
        states = (STATES[self._state(number, t)] for number in range(first, last + 1))
        return Cells(first * CELL_SECONDS, CELL_SECONDS, tuple(states))

    def _state(self, number: int, t: float) -> int:
        cell = number % CELLS
        if self._numbers[cell] != number:
            return _UNKNOWN
        if self._worst[cell] > _HEALTHY:
            return self._worst[cell]
        length_s = min(CELL_SECONDS, t - number * CELL_SECONDS)
        return _HEALTHY if self._healthy_s[cell] > length_s / 2 else _UNKNOWN
