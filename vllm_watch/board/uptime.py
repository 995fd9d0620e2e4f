"""Measure uptime over 24 hours, 7 days and 30 days."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.board.day import STATES

HOUR_SECONDS, DAY_SECONDS = 3600, 86400
HOURS, DAYS = 25, 31
"""Uptime is kept for this many hours and days: one more than shown, because the current one is incomplete."""

SPANS_DAYS = (1, 7, 30)
FORM = f"1 uptime {HOURS} {DAYS}"
_DOWN = frozenset(map(STATES.index, ("critical", "down")))
_UP = frozenset(map(STATES.index, ("healthy", "warning")))


@dataclass(frozen=True, slots=True)
class Share:
    """Uptime over `seconds`. `up_ratio` is the uptime divided by the known time. It is None if no time is known."""

    seconds: float
    up_ratio: float | None
    unknown_ratio: float


class _Ring:
    __slots__ = ("_down", "_numbers", "_up", "span_s")

    def __init__(self, size: int, span_s: int) -> None:
        self.span_s = span_s
        self._numbers = array("q", [-1]) * size  # numbers of time spans, counted from 1970
        self._up = array("d", [0.0]) * size
        self._down = array("d", [0.0]) * size

    def push(self, t: float, up_s: float, down_s: float) -> None:
        number = int(t // self.span_s)
        place = number % len(self._numbers)
        if self._numbers[place] != number:
            self._numbers[place], self._up[place], self._down[place] = number, 0.0, 0.0
        self._up[place] += up_s
        self._down[place] += down_s

    def sums(self, t: float, spans: int) -> tuple[float, float, float]:
        last = int(t // self.span_s)
        inside = [i for i, number in enumerate(self._numbers) if last - spans < number <= last]
        length = (spans - 1) * self.span_s + t % self.span_s
        return sum(self._up[i] for i in inside), sum(self._down[i] for i in inside), length

    def export(self) -> bytes:
        return self._numbers.tobytes() + self._up.tobytes() + self._down.tobytes()

    def restore(self, data: bytes) -> None:
        size = 8 * len(self._numbers)
        self._numbers = array("q", data[:size])
        self._up, self._down = array("d", data[size : 2 * size]), array("d", data[2 * size :])
        if not all(math.isfinite(s) and s >= 0 for s in (*self._up, *self._down)):
            raise ValueError("it contains an invalid time")


class Uptime:
    """One target's uptime."""

    __slots__ = ("_days", "_hours")

    def __init__(self) -> None:
        self._hours, self._days = _Ring(HOURS, HOUR_SECONDS), _Ring(DAYS, DAY_SECONDS)

    def push(self, t: float, found: int, seconds: float) -> None:
        """`found` is an index in board.day.STATES."""
        up_s, down_s = seconds * (found in _UP), seconds * (found in _DOWN)
        for ring in (self._hours, self._days):
            ring.push(t, up_s, down_s)

    def shares(self, t: float) -> Sequence[Share]:
        found = []
        for days in SPANS_DAYS:
            ring, spans = (self._hours, HOURS) if days == 1 else (self._days, days)
            up_s, down_s, length_s = ring.sums(t, spans)
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
        uptime._hours.restore(data[: 24 * HOURS])
        uptime._days.restore(data[24 * HOURS :])
        return uptime
