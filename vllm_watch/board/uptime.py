"""Measure uptime over 24 hours, 7 days and 30 days, and keep the worst state of each quarter of an hour of the last day.

A quarter of an hour counts as healthy only if the target was healthy for over half of it.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_watch.incidents.incident import Incident
from vllm_watch.signals.records import TargetSignals

CELLS = 96
CELL_SECONDS = 900.0
STATES = ("unknown", "healthy", "warning", "critical", "down")
"""States in order of severity."""

_UNKNOWN, _HEALTHY, _WARNING, _CRITICAL, _DOWN = range(len(STATES))
_UP, _DISTURBED = (_HEALTHY, _WARNING), (_CRITICAL, _DOWN)
_OF_SEVERITY = {"page": _CRITICAL, "ticket": _WARNING}

HOUR_SECONDS, DAY_SECONDS = 3600, 86400
HOURS, DAYS = 25, 31
"""Uptime is kept for this many hours and days: one more than shown, because the current one is incomplete."""

SPANS_DAYS = (1, 7, 30)
FORM = f"1 uptime {HOURS} {DAYS}"


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


@dataclass(frozen=True, slots=True)
class Share:
    """Uptime over `seconds`. `up_ratio` is the uptime divided by the known time. It is None if no time is known."""

    seconds: float
    up_ratio: float | None
    unknown_ratio: float


class _Ring:
    """Sums or maxima of the last time spans, one array for each of `types`."""

    __slots__ = ("columns", "numbers", "span_s")

    def __init__(self, size: int, span_s: float, types: str) -> None:
        self.span_s = span_s
        self.numbers = array("q", [-1]) * size  # numbers of time spans, counted from 1970
        self.columns: list[array[Any]] = [array(each, [0]) * size for each in types]

    def place(self, t: float) -> int:
        """Return the index of the span of Unix time `t`. An older span there is dropped."""
        number = int(t // self.span_s)
        place = number % len(self.numbers)
        if self.numbers[place] != number:
            self.numbers[place] = number
            for column in self.columns:
                column[place] = 0
        return place

    def export(self) -> bytes:
        return b"".join(each.tobytes() for each in (self.numbers, *self.columns))

    def restore(self, data: bytes) -> bytes:
        """Read this ring from `data`, which is long enough, and return the rest."""
        for each in (self.numbers, *self.columns):
            size = each.itemsize * len(each)
            each[:] = array(each.typecode, data[:size])
            data = data[size:]
        return data


class Day:
    """The last 24 hours of one target."""

    __slots__ = ("_ring",)

    def __init__(self) -> None:
        self._ring = _Ring(CELLS, CELL_SECONDS, "Bf")  # worst state, and healthy seconds

    def export(self) -> bytes:
        return self._ring.export()

    @classmethod
    def restored(cls, data: bytes) -> "Day":
        """Raises ValueError if `data` is malformed."""
        if len(data) != 13 * CELLS or max(data[8 * CELLS : 9 * CELLS]) >= len(STATES):
            raise ValueError("it is not a day")
        day = cls()
        day._ring.restore(data)
        return day

    def push(self, t: float, found: int, seconds: float) -> None:
        """Record that the state `found` lasted `seconds`."""
        cell, (worst, healthy_s) = self._ring.place(t), self._ring.columns
        worst[cell] = max(worst[cell], found)
        if found == _HEALTHY:
            healthy_s[cell] += seconds

    def cells(self, t: float) -> Cells:
        last = int(t // CELL_SECONDS)
        first = last - CELLS + 1
        states = (STATES[self._state(number, t)] for number in range(first, last + 1))
        return Cells(first * CELL_SECONDS, CELL_SECONDS, tuple(states))

    def _state(self, number: int, t: float) -> int:
        cell, (worst, healthy_s) = number % CELLS, self._ring.columns
        if self._ring.numbers[cell] != number:
            return _UNKNOWN
        if worst[cell] > _HEALTHY:
            return int(worst[cell])
        length_s = min(CELL_SECONDS, t - number * CELL_SECONDS)
        return _HEALTHY if healthy_s[cell] > length_s / 2 else _UNKNOWN


class Uptime:
    """One target's uptime."""

    __slots__ = ("_days", "_hours")

    def __init__(self) -> None:
        # Seconds up, and seconds down.
        self._hours = _Ring(HOURS, HOUR_SECONDS, "dd")
        self._days = _Ring(DAYS, DAY_SECONDS, "dd")

    def push(self, t: float, found: int, seconds: float) -> None:
        """`found` is an index in STATES."""
        for ring in (self._hours, self._days):
            place, (up_s, down_s) = ring.place(t), ring.columns
            if found in _UP:
                up_s[place] += seconds
            elif found in _DISTURBED:
                down_s[place] += seconds

    def shares(self, t: float) -> Sequence[Share]:
        found = []
        for days in SPANS_DAYS:
            ring, spans = (self._hours, HOURS) if days == 1 else (self._days, days)
            last = int(t // ring.span_s)
            inside = [i for i, number in enumerate(ring.numbers) if last - spans < number <= last]
            up_s, down_s = (sum(column[i] for i in inside) for column in ring.columns)
            length_s = (spans - 1) * ring.span_s + t % ring.span_s
            known_s = up_s + down_s
            ratio = up_s / known_s if known_s > 0 else None
            unknown = max(0.0, 1.0 - known_s / length_s) if length_s > 0 else 1.0
            found.append(Share(float(days * DAY_SECONDS), ratio, unknown))
        return found

    def export(self) -> bytes:
        return self._hours.export() + self._days.export()

    @classmethod
    def restored(cls, data: bytes) -> "Uptime":
        """Raises ValueError if `data` is malformed."""
        if len(data) != 24 * (HOURS + DAYS):
            raise ValueError("it is not an uptime")
        uptime = cls()
        uptime._days.restore(uptime._hours.restore(data))
        seconds = (*uptime._hours.columns, *uptime._days.columns)
        if not all(math.isfinite(s) and s >= 0 for column in seconds for s in column):
            raise ValueError("it contains an invalid time")
        return uptime
