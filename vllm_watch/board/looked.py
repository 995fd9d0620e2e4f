"""When a look was made, by both clocks, and whether what it found may still be acted on."""

import time
from dataclasses import dataclass

FRESH_SECONDS_MIN = 1.0
"""At five looks a second a busy watcher's next one may be that late."""

STEP_SECONDS = 1.0
"""The two clocks drift apart by milliseconds in a minute: more is a clock that was set, or a machine that slept
(the monotonic clock stands still then)."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The clocks when a look began."""

    t: float  # Unix seconds
    monotonic_s: float
    fresh_seconds: float  # for so long it counts
    pids: frozenset[int] = (
        frozenset()
    )  # of the engines' processes on this host, where they are known

    @classmethod
    def now(cls) -> "Looked":
        """A look begins."""
        return cls(time.time(), time.monotonic(), 0.0)

    def ended(
        self, interval_seconds: float, timeout_seconds: float, pids: frozenset[int] = frozenset()
    ) -> "Looked":
        """Return it as one that counts for two intervals, and as long as this look and the next may take."""
        took_s = min(time.monotonic() - self.monotonic_s, timeout_seconds)
        fresh_s = max(FRESH_SECONDS_MIN, 2.0 * (interval_seconds + took_s))
        return Looked(self.t, self.monotonic_s, fresh_s, pids)

    def stale(self) -> str | None:
        """Why nothing may be done any more for what it found, in words."""
        now_s = time.monotonic()
        age_s = now_s - self.monotonic_s
        if age_s > self.fresh_seconds:
            return f"the last scrape is {age_s:.0f} s old"
        if abs(time.time() - self.t - age_s) > STEP_SECONDS:
            return "since the last scrape the clock was set, or the machine slept"
        return None
