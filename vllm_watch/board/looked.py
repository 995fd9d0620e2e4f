"""Decide whether a scrape is fresh, by the wall clock and the monotonic clock."""

import time
from dataclasses import dataclass

FRESH_SECONDS_MIN = 1.0
"""A scrape is fresh for at least this many seconds, because a busy watcher may be late."""

STEP_SECONDS = 1.0
"""If the two clocks diverge by more than this, a clock was set or the host slept."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The time of both clocks at the start of a scrape."""

    t: float
    monotonic_s: float
    fresh_seconds: float
    pids: frozenset[int] = frozenset()  # known engine processes on this host

    @classmethod
    def now(cls) -> "Looked":
        return cls(time.time(), time.monotonic(), 0.0)

    def ended(
        self, interval_seconds: float, timeout_seconds: float, pids: frozenset[int] = frozenset()
    ) -> "Looked":
        took_s = min(time.monotonic() - self.monotonic_s, timeout_seconds)
        fresh_s = max(FRESH_SECONDS_MIN, 2.0 * (interval_seconds + took_s))
        return Looked(self.t, self.monotonic_s, fresh_s, pids)

    def stale(self) -> str | None:
        now_s = time.monotonic()
        age_s = now_s - self.monotonic_s
        if age_s > self.fresh_seconds:
            return f"the last scrape is {age_s:.0f} s old"
        if abs(time.time() - self.t - age_s) > STEP_SECONDS:
            return "since the last scrape the clock was set, or the machine slept"
        return None
