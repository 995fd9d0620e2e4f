"""How much longer steps must take, and for how long, before a slow engine pages, and before a restart is advised.

A ticket is said as soon as steps are longer than this load's usually are. Neither a page nor a restart may rest
on that alone: load has a composition that no counter tells (adapters, grammars, images), and step times wander.
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
"""A restart is advised only where steps are longer by so much than in any slowdown that went by itself."""


LASTING_LOG_RATIO = log(1.12)
"""Steps that take so much longer for LASTING_MINUTES are a ticket, though no block of them is odd."""

LASTING_MINUTES = 20
"""Of work at loads that the engine has met; in each of them."""

LASTING_DEVIATIONS = 2.5
"""... and, on their mean, beyond so many deviations of a single minute, known from KNOWN_MINUTES."""

KNOWN_MINUTES = 30.0
"""Of work, before the deviation of a minute is known well enough to judge by it."""

_MINUTE_SECONDS = 60.0
"""Work per value: requests come and go within one, and what is lasting outlives many."""

_PAGE = rule(PAGE, OWN_PAST)


class Lasting:
    """Small losses that stay, minute by minute."""

    def __init__(self) -> None:
        self._sum = self._seconds = 0.0
        self._minutes: deque[float] = deque(maxlen=LASTING_MINUTES)

    def add(self, log_ratio: float, seconds: float) -> None:
        """Take a block of a familiar load in."""
        self._sum += log_ratio * seconds
        self._seconds += seconds
        if self._seconds >= _MINUTE_SECONDS:
            self._minutes.append(self._sum / self._seconds)
            self._sum = self._seconds = 0.0

    def found(self, wander: Wander) -> float | None:
        """By how much steps have been longer (log ratio); None: they were not, or not for so long."""
        if len(self._minutes) < LASTING_MINUTES or wander.minutes < KNOWN_MINUTES:
            return None
        least = max(LASTING_LOG_RATIO, LASTING_DEVIATIONS * wander.stray)
        middle = mean(self._minutes)
        return middle if middle >= least and min(self._minutes) >= 0.5 * least else None


class Bar:
    """Follows one life of an engine."""

    def __init__(self) -> None:
        self.wander = Wander()
        self.lasting = Lasting()
        self.reached: Sequence[str] = ()  # consequences of the slowdown that lasts now
        self.shift = Shift(OWN_PAST, 0.0, 0.0, harmed=False)  # ... as it is
        self._seconds = 0.0  # for how long it has been beyond the bar
        self._worst = 0.0  # of the slowdown that lasts now
        self._recovered = 0.0  # worst slowdown that went by itself

    def follow(self, comparison: Comparison, *, doubt: bool, harmed: bool) -> None:
        """Take a block in. `doubt`: something may be wrong; `harmed`: users feel it."""
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
        """Return by how much steps have been longer at known loads for so long; None if they have not."""
        log_ratio = self.lasting.found(self.wander)
        if log_ratio is None:
            return None
        text = f"steps have taken {exp(log_ratio):.2f} times as long as when fresh for {LASTING_MINUTES} minutes of work at loads that it knows"
        return Evidence(name="step_time_ratio", value=exp(log_ratio), expected=1.0, text=text)

    def excuse(self) -> None:
        """What slows it down is known and not its own: that it goes again says nothing of the engine."""
        self._worst = 0.0

    def export_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "wander": self.wander.export_state(),
            "reached": list(self.reached),
            "seconds": self._seconds,
            "worst": self._worst,
            "recovered": self._recovered,
        }

    def restore(self, state: stored.Stored) -> None:
        """Go on from there. Raises one of stored.DAMAGE."""
        self.wander.restore(state["wander"])
        self.reached = stored.texts(state.get("reached", ()))
        self._seconds, self._worst = stored.number(state["seconds"]), stored.number(state["worst"])
        self._recovered = stored.number(state["recovered"])
