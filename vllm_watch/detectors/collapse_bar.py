"""Decides when a slow engine pages, and when a restart is advised.

Both need more proof than a ticket, because step times drift without a fault.
"""

from collections import deque
from collections.abc import Sequence
from math import exp, log
from statistics import mean
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.consequences import OWN_PAST, PAGE, Shift, fulfilled, rule
from vllm_watch.signals import stored
from vllm_watch.signals.baseline import Comparison
from vllm_watch.signals.wander import Wander

RECOVERED_MARGIN = log(1.2)
"""If a slowdown ended by itself, a restart is advised only for one that exceeds it by this log
ratio."""


LASTING_LOG_RATIO = log(1.12)
"""A ticket opens if the mean slowdown over LASTING_MINUTES reaches this log ratio."""

LASTING_MINUTES = 20
"""Small slowdowns are judged over this many minutes of work. Only minutes with familiar loads
count."""

LASTING_DEVIATIONS = 2.5
"""A small slowdown must also exceed this many standard deviations of one-minute means."""

KNOWN_MINUTES = 30.0
"""The standard deviation of one-minute means is known after this many minutes of work."""

_MINUTE_SECONDS = 60.0
"""Step times are averaged over this many seconds of work."""

_PAGE = rule(PAGE, OWN_PAST)


class Lasting:
    """Finds small slowdowns that last."""

    def __init__(self) -> None:
        self._sum = self._seconds = 0.0
        self._minutes: deque[float] = deque(maxlen=LASTING_MINUTES)

    def add(self, log_ratio: float, seconds: float) -> None:
        self._sum += log_ratio * seconds
        self._seconds += seconds
        if self._seconds >= _MINUTE_SECONDS:
            self._minutes.append(self._sum / self._seconds)
            self._sum = self._seconds = 0.0

    def found(self, wander: Wander) -> float | None:
        if len(self._minutes) < LASTING_MINUTES or wander.minutes < KNOWN_MINUTES:
            return None
        least = max(LASTING_LOG_RATIO, LASTING_DEVIATIONS * wander.stray)
        middle = mean(self._minutes)
        return middle if middle >= least and min(self._minutes) >= 0.5 * least else None


class Bar:
    """Follows the slowdown of one process."""

    def __init__(self) -> None:
        self.wander = Wander()
        self.lasting = Lasting()
        self.reached: Sequence[str] = ()
        self.shift = Shift(OWN_PAST, 0.0, 0.0, harmed=False)
        self._seconds = 0.0
        self._worst = 0.0
        self._recovered = 0.0  # worst slowdown that ended by itself

    def follow(self, comparison: Comparison, *, doubt: bool, harmed: bool) -> None:
        block, log_ratio, alarm = comparison.block, comparison.slow_log_ratio, comparison.slow
        if log_ratio is None or block.long_prompts:
            return
        self.wander.add(log_ratio, block.seconds, well=not (doubt or alarm))
        if comparison.familiar:
            self.lasting.add(log_ratio, block.seconds)
        if not alarm:
            if self.reached:
                self.wander.forget()
            self._recovered = max(self._recovered, self._worst)
            self.reached = ()
            self._seconds = self._worst = 0.0
            return
        now = self.wander.now
        self._worst = max(self._worst, now)
        exceeded = comparison.sure and self.wander.exceeded(_PAGE.log_ratio)
        beyond = now >= _PAGE.log_ratio if self.reached else exceeded
        self._seconds = self._seconds + block.seconds if beyond else 0.0
        out_of_reach = now >= self._recovered + RECOVERED_MARGIN
        self.shift = Shift(OWN_PAST, now, self._seconds, harmed=harmed, curable=out_of_reach)
        self.reached = max(self.reached, fulfilled(self.shift), key=len)

    def lasts(self) -> Evidence | None:
        log_ratio = self.lasting.found(self.wander)
        if log_ratio is None:
            return None
        text = f"for {LASTING_MINUTES} minutes of work each step has taken {exp(log_ratio):.2f} times as long as usual at this load"
        return Evidence(name="step_time_ratio", value=exp(log_ratio), expected=1.0, text=text)

    def excuse(self) -> None:
        self._worst = 0.0

    def export_state(self) -> dict[str, Any]:
        return {
            "wander": self.wander.export_state(),
            "reached": list(self.reached),
            "seconds": self._seconds,
            "worst": self._worst,
            "recovered": self._recovered,
        }

    def restore(self, state: stored.Stored) -> None:
        self.wander.restore(state["wander"])
        self.reached = stored.texts(state.get("reached", ()))
        self._seconds, self._worst = stored.number(state["seconds"]), stored.number(state["worst"])
        self._recovered = stored.number(state["recovered"])
