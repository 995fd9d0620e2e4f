"""How far this engine's step times wander by themselves from one minute to the next.

Blocks scatter, and their scatter is averaged out in a minute; what is left is slow: another mix of requests, a
busy host, adapters, grammars. It adds up like a random walk, so over k minutes it goes no further than the root
of k times as far. A change that is larger than that is no wander, whether it came at once or crept in. What crept
in over hours is told by its level: an engine that was seen for long has shown how far from the usual it strays.
"""

from collections import deque
from collections.abc import Sequence
from math import exp, sqrt
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.scatter import scatter

MINUTE_SECONDS = 60.0
"""Work, not time of the day: an idle engine has no steps that could wander."""

SMOOTH_SECONDS = 20.0
"""Step time now is an exponential mean over this: shorter than a minute, so that a change is seen within one."""

FIRST, FIRST_MINUTES = 0.04, 8.0
"""A change from minute to minute that is assumed at first, and for how many minutes that counts."""

MEMORY_MINUTES = 720.0
"""Changes are averaged over so many minutes of work, half a day."""

STRAY_FIRST = 0.08
"""Standard deviation of a minute's level that is assumed at first, and never less than this."""

STRAY_MINUTES_MIN = 120.0
"""Minutes of work until its own level may be judged by."""

STRAY_DEVIATIONS = 5.0
"""A level is none of wander beyond so many."""

PENDING_MAX = 60
"""Minutes of an excursion that wait until it has healed; of a longer one the beginning is left out."""

UNREST_MINUTES = 4
"""Changes that wait, from which on their own scatter counts, too: a fault comes in a move or creeps evenly;
what goes up and down on its way wanders (world `wander_5`, an engine known for ten minutes: a restart was advised in 3
of 150 seeds, and in none since)."""

MOVE = 0.6
"""More than this from one minute to the next (1.8 times) is the move of a fault that comes or goes, and no unrest: in a
wander of sigma 0.5 over ten minutes it is 2.8 deviations of a change."""

LAGS_MINUTES = (1, 2, 4, 8, 16, 32)
"""Over which a change is looked for."""

OUTLIER = 3.0
"""A minute beyond so many deviations teaches as much as one at them: a wander comes again and again and is learnt in a
few minutes all the same; one slowdown that was cured is not the engine's habit."""

DEVIATIONS = 5.0
"""A change is none of wander beyond so many standard deviations: six lags are looked at each minute, all day."""


class Wander:
    """Log ratios of step time to the usual, by minutes of work."""

    def __init__(self) -> None:
        self.now = 0.0  # smoothed
        self._minutes: deque[float] = deque(maxlen=max(LAGS_MINUTES))  # means, oldest first
        self._sum = self._seconds = 0.0  # of the minute under way
        self._square, self._count = FIRST**2, FIRST_MINUTES
        self._level_square = STRAY_FIRST**2
        self._pending: deque[tuple[float, float]] = deque(maxlen=PENDING_MAX)  # change, level

    def add(self, log_ratio: float, seconds: float, *, well: bool) -> None:
        """Take a block in. `well`: nothing is in doubt, so that what happened until now belongs to this engine."""
        self.now += (log_ratio - self.now) * (1.0 - exp(-seconds / SMOOTH_SECONDS))
        self._sum += log_ratio * seconds
        self._seconds += seconds
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
        """Drop the minutes that wait: they were a trouble, which is no habit of this engine."""
        for _ in range(min(len(self._pending), len(self._minutes) - 1)):
            self._minutes.pop()
        self._pending.clear()

    def _learn(self, change: float, level: float) -> None:
        self._count = min(self._count + 1.0, MEMORY_MINUTES)
        self._square = _learnt(self._square, change, FIRST, self._count)
        self._level_square = _learnt(self._level_square, level, STRAY_FIRST, self._count)

    @property
    def a_minute(self) -> float:
        """Standard deviation of the change from one minute to the next."""
        return sqrt(self._square)

    @property
    def stray(self) -> float:
        """Standard deviation of a minute's level."""
        return sqrt(self._level_square)

    @property
    def minutes(self) -> float:
        """Of work from which that is known."""
        return self._count

    def exceeded(self, at_least: float) -> bool:
        """Has the step time grown by more than wander explains, and to `at_least` (log ratio)?"""
        if self.now < at_least:
            return False
        stray = STRAY_DEVIATIONS * max(STRAY_FIRST, self.stray)
        if self._count >= STRAY_MINUTES_MIN and self.now >= stray:
            return True
        limit = DEVIATIONS * max(self.a_minute, self._unrest())
        return any(
            self.now - self._minutes[-lag] >= limit * sqrt(lag)
            for lag in LAGS_MINUTES
            if lag <= len(self._minutes)
        )

    def _unrest(self) -> float:
        """Standard deviation of the changes that wait, moves left out."""
        changes = [change for change, _ in self._pending if abs(change) < MOVE]
        return scatter(changes) if len(changes) >= UNREST_MINUTES else 0.0

    def export_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "now": self.now,
            "minutes": list(self._minutes),
            "square": self._square,
            "count": self._count,
            "level_square": self._level_square,
            "pending": [list(each) for each in self._pending],
        }

    def restore(self, state: stored.Stored) -> None:
        """Go on from there. Raises one of stored.DAMAGE."""
        minutes: Sequence[float] = stored.numbers(state["minutes"])
        pending = [stored.numbers(each, 2) for each in state["pending"]]
        now, square = stored.number(state["now"]), stored.number(state["square"], 0.0)
        level = stored.number(state["level_square"], 0.0)
        self._count, self._level_square = stored.number(state["count"], 1.0), level
        self.now, self._square = now, square
        self._minutes.extend(minutes)
        self._pending.extend((change, mean) for change, mean in pending)


def _learnt(square: float, value: float, first: float, count: float) -> float:
    """A mean square with one more value of `count`, an outlier cut; it counts as scatter of `first` at least."""
    most = OUTLIER * max(first, sqrt(square))
    return square + (min(value * value, most * most) - square) / count
