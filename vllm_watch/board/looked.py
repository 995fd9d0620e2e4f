"""Decide by wall and monotonic clock whether a scrape is fresh."""

import time
from dataclasses import dataclass

FRESH_SECONDS_MIN = 1.0
"""Minimum seconds for which a scrape is fresh. A busy watcher may be this late."""

STEP_SECONDS = 1.0
"""Maximum divergence of the two clocks. A larger divergence shows a changed clock or a host that slept."""


@dataclass(frozen=True, slots=True)
class Looked:
    """Both clocks at the start of a scrape."""

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
        """The scrape is fresh for twice the sum of interval and scrape duration."""
        took_s = min(time.monotonic() - self.monotonic_s, timeout_seconds)
        fresh_s = max(FRESH_SECONDS_MIN, 2.0 * (interval_seconds + took_s))
        return Looked(self.t, self.monotonic_s, fresh_s, pids)

    def stale(self) -> str | None:
        """Return why the scrape is stale, or None."""
        now_s = time.monotonic()
        age_s = now_s - self.monotonic_s
        if age_s > self.fresh_seconds:
            return f"the last scrape is {age_s:.0f} s old"
        if abs(time.time() - self.t - age_s) > STEP_SECONDS:
            return "since the last scrape the clock was set, or the machine slept"
        return None
