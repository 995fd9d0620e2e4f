"""Converts times of observations to an axis without clock steps."""

from collections import deque
from statistics import median

from vllm_watch.signals import stored
from vllm_watch.signals.scales import HALF_MINUTE_SECONDS, PAST_KEPT

STEP_FACTOR = 8.0
"""A clock step is longer than this many usual intervals. Timeouts and retries stretch an interval
two- to threefold."""


RESOLUTION_SECONDS = 1e-6
"""Minimum seconds between polls. A shorter time is a clock error."""

PAUSE_SECONDS_MAX = 366 * 86_400.0
"""Maximum seconds between polls. A longer time is a clock error."""

AXIS_SECONDS_MAX = 100 * PAUSE_SECONDS_MAX
"""Maximum length of the axis, at which floats still resolve microseconds."""


class Timeline:
    """Converts observation times to seconds on its own axis."""

    def __init__(self) -> None:
        self._t: float | None = None
        self._monotonic_s: float | None = None
        self._at_s = 0.0
        self._usual: deque[float] = deque(maxlen=PAST_KEPT)

    def advance(self, t: float, monotonic_s: float | None) -> tuple[float, bool]:
        """Return the seconds on the axis, and True if the time since the last call is known."""
        last_t, last_monotonic_s = self._t, self._monotonic_s
        self._t, self._monotonic_s = t, monotonic_s
        if last_t is None:
            return self._at_s, True
        if monotonic_s is not None and last_monotonic_s is not None:
            step_s = monotonic_s - last_monotonic_s
            # The clock goes back after a reboot, or in joined recordings.
            known = RESOLUTION_SECONDS <= step_s <= PAUSE_SECONDS_MAX
        else:
            step_s = t - last_t
            limit_s = PAUSE_SECONDS_MAX
            if self._usual:
                # Even at an interval of 1 s, a scrape may be seconds late.
                limit_s = max(HALF_MINUTE_SECONDS, STEP_FACTOR * median(self._usual))
            known = RESOLUTION_SECONDS <= step_s <= limit_s
        if known:
            self._usual.append(step_s)
        else:
            step_s = median(self._usual) if self._usual else 1.0
        self._at_s += step_s
        return self._at_s, known

    def is_late(self, t: float, monotonic_s: float | None) -> bool:
        if monotonic_s is not None and self._monotonic_s is not None:
            return monotonic_s <= self._monotonic_s
        return self._t is not None and t <= self._t

    def export_state(self) -> dict[str, float] | None:
        return None if self._t is None else {"t": self._t, "at_s": self._at_s}

    def restore(self, state: stored.Stored) -> None:
        t, at_s = stored.number(state["t"]), stored.number(state["at_s"], 0.0)
        if at_s > AXIS_SECONDS_MAX:
            raise ValueError(f"the axis cannot stand at {at_s:g} s")
        self._t, self._at_s = t, at_s
