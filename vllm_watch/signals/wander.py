"""Learns how much step times wander, that is, drift from minute to minute without a fault.

As in a random walk, their change in k minutes is at most √k times their change in one minute.
"""

from collections import deque
from collections.abc import Collection
from functools import partial
from math import exp, sqrt
from statistics import median
from typing import ClassVar

from vllm_watch.signals import stored
from vllm_watch.signals.scales import FEW, KEPT_MAX, MINUTE_SECONDS, MOMENT_SECONDS

FIRST, FIRST_MINUTES = 0.04, 8.0
"""At first, this change in a minute is assumed. The second value is the weight of this assumption in minutes."""

MEMORY_MINUTES = 720.0
"""Changes are averaged over this many minutes: half a day of work."""

STRAY_FIRST = 0.08
"""Initial and minimum standard deviation of a minute's log ratio."""

STRAY_MINUTES_MIN = 120.0
"""After this many minutes of work, the log ratio itself is judged, too, not only its changes."""


MOVE = 0.6
"""If the log ratio changes by this much in a minute (1.8 times), a fault may begin or end."""

LAGS_MINUTES = (1, 2, 4, 8, 16, 32)
"""Lags at which changes are tested."""

OUTLIER = 3.0
"""Learnt changes are limited to this many standard deviations, so that one cured slowdown does not
become usual."""

DEVIATIONS = 5.0
"""A log ratio or change of at least this many standard deviations is not wander. The number is high,
because six lags are tested each minute, all day."""


class Wander(stored.Kept):
    """Follows the log ratio of actual to usual step time, by minute of work."""

    KEPT: ClassVar[stored.Fields] = {
        "now": stored.number,
        "minutes": stored.last(max(LAGS_MINUTES)),
        "square": stored.amount,
        "count": partial(stored.number, least=1.0),
        "level_square": stored.amount,
        "pending": lambda kept: deque((stored.pair(each) for each in kept), KEPT_MAX),
    }

    def __init__(self) -> None:
        self.now = 0.0
        self._minutes: deque[float] = deque(maxlen=max(LAGS_MINUTES))
        self._sum = self._seconds = 0.0
        self._square, self._count = FIRST**2, FIRST_MINUTES
        self._level_square = STRAY_FIRST**2
        self._pending: deque[tuple[float, float]] = deque(maxlen=KEPT_MAX)  # change, log ratio

    def add(self, log_ratio: float, seconds: float, *, well: bool) -> None:
        self.now += (log_ratio - self.now) * (1.0 - exp(-seconds / MOMENT_SECONDS))
        self._sum += log_ratio * seconds
        self._seconds += seconds
        # A minute is one of work, because step times of idle engines do not drift.
        if self._seconds >= MINUTE_SECONDS:
            mean = self._sum / self._seconds
            if self._minutes:
                self._pending.append((mean - self._minutes[-1], mean))
            self._minutes.append(mean)
            self._sum = self._seconds = 0.0
        if well:
            while self._pending:
                self._learn(*self._pending.popleft())

    def forget(self) -> None:
        for _ in range(min(len(self._pending), len(self._minutes) - 1)):
            self._minutes.pop()
        self._pending.clear()

    def _learn(self, change: float, level: float) -> None:
        self._count = min(self._count + 1.0, MEMORY_MINUTES)
        self._square = _learnt(self._square, change, FIRST, self._count)
        self._level_square = _learnt(self._level_square, level, STRAY_FIRST, self._count)

    @property
    def a_minute(self) -> float:
        return sqrt(self._square)

    @property
    def stray(self) -> float:
        return sqrt(self._level_square)

    @property
    def minutes(self) -> float:
        return self._count

    def exceeded(self, at_least: float) -> bool:
        if self.now < at_least:
            return False
        stray = DEVIATIONS * max(STRAY_FIRST, self.stray)
        if self._count >= STRAY_MINUTES_MIN and self.now >= stray:
            return True
        limit = DEVIATIONS * max(self.a_minute, self._unrest())
        return any(
            self.now - self._minutes[-lag] >= limit * sqrt(lag)
            for lag in LAGS_MINUTES
            if lag <= len(self._minutes)
        )

    def _unrest(self) -> float:
        changes = [change for change, _ in self._pending if abs(change) < MOVE]
        # A fault comes at once or creeps evenly, but wander goes up and down.
        return scatter(changes) if len(changes) >= FEW else 0.0


def _learnt(square: float, value: float, first: float, count: float) -> float:
    most = OUTLIER * max(first, sqrt(square))
    return square + (min(value * value, most * most) - square) / count


_NORMAL = 1.48
"""Ratio of standard deviation to median absolute deviation in a normal distribution."""


def scatter(values: Collection[float]) -> float:
    """Return a standard deviation. Up to half of the values may be outliers. `values` must not be empty."""
    middle = median(values)
    return _NORMAL * median(abs(each - middle) for each in values)
