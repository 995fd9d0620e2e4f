"""One axis of time that never steps, made of observations whose clocks may.

Live observations carry the monotonic clock, and that is the axis. Recordings may carry Unix time only,
which NTP and people set back and forth, and whose lines may come late. A rate over a stepped clock is
a lie, so a step is put right here, once, for everything that reckons with time.
"""

from collections import deque
from statistics import median

from vllm_watch.signals import stored

USUAL_OF = 15
"""Intervals that tell what is usual: few enough to follow a changed scrape interval within a minute."""

STEP_FACTOR = 8.0
"""A forward jump beyond so many usual intervals is a gap of which nothing is known, or a clock step;
which of the two cannot be told from Unix time, so no rate may be taken across it. Scrapes that time
out and retry stretch an interval two- to threefold."""

STEP_SECONDS_MIN = 20.0
"""... but never below this: at one scrape a second a pause of a few seconds is no step."""


RESOLUTION_SECONDS = 1e-6
"""Two looks are never so close: what says so is no clock, and nothing can be divided by it."""

PAUSE_SECONDS_MAX = 366 * 86_400.0
"""No watcher pauses for a year and goes on: what says so is no clock, and the axis would lose its fine steps."""

AXIS_SECONDS_MAX = 100 * PAUSE_SECONDS_MAX
"""Where an axis that was kept may stand; a float still tells microseconds there."""


class Timeline:
    """Turns an observation's times into seconds on an axis of its own."""

    def __init__(self) -> None:
        self._t: float | None = None
        self._monotonic_s: float | None = None
        self._at_s = 0.0
        self._usual: deque[float] = deque(maxlen=USUAL_OF)

    def advance(self, t: float, monotonic_s: float | None) -> tuple[float, bool]:
        """Return (seconds on the axis, whether the step from the observation before is known).

        Where it is not known, rates must begin anew.
        """
        last_t, last_monotonic_s = self._t, self._monotonic_s
        self._t, self._monotonic_s = t, monotonic_s
        if last_t is None:
            return self._at_s, True
        if monotonic_s is not None and last_monotonic_s is not None:
            step_s = monotonic_s - last_monotonic_s
            # A monotonic clock that goes back is another boot's: the recording was joined of two.
            known = RESOLUTION_SECONDS <= step_s <= PAUSE_SECONDS_MAX
        else:
            step_s = t - last_t
            known = RESOLUTION_SECONDS <= step_s <= self._step_limit_s()
        if known:
            self._usual.append(step_s)
        else:
            step_s = median(self._usual) if self._usual else 1.0
        self._at_s += step_s
        return self._at_s, known

    def is_late(self, t: float, monotonic_s: float | None) -> bool:
        """Is this observation's time at or before the last one's?"""
        if monotonic_s is not None and self._monotonic_s is not None:
            return monotonic_s <= self._monotonic_s
        return self._t is not None and t <= self._t

    def export_state(self) -> dict[str, float] | None:
        """Return where the axis stands, as plain values; None before the first observation."""
        return None if self._t is None else {"t": self._t, "at_s": self._at_s}

    def restore(self, state: stored.Stored) -> None:
        """Go on with the axis of an earlier run: the time between them is taken from Unix time.

        Raises one of stored.DAMAGE, and has then changed nothing.
        """
        t, at_s = stored.number(state["t"]), stored.number(state["at_s"], 0.0)
        if at_s > AXIS_SECONDS_MAX:
            raise ValueError(f"the axis cannot stand at {at_s:g} s")
        self._t, self._at_s = t, at_s

    def _step_limit_s(self) -> float:
        if not self._usual:
            return PAUSE_SECONDS_MAX
        return max(STEP_SECONDS_MIN, STEP_FACTOR * median(self._usual))
