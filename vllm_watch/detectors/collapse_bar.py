"""How much longer steps must take, and for how long, before a slow engine pages, and before a restart is advised.

A ticket is said as soon as steps are longer than this load's usually are. Neither a page nor a restart may rest
on that alone: load has a composition that no counter tells (adapters, grammars, images), and step times wander.
"""

from math import log
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.wander import Wander

PAGE_LOG_RATIO = log(1.45)
"""Less than half as long again is a ticket however long it lasts: adapters, grammars and encoders cost as much."""

PAGE_SECONDS = 20.0
"""The change must be beyond wander for so long, at work."""

RESTART_SECONDS = 60.0
"""... and so long before a restart is advised, which costs minutes of loading and every request in flight."""

RECOVERED_MARGIN = log(1.2)
"""A restart is advised only where steps are longer by so much than in any slowdown that went by itself."""


class Bar:
    """Follows one life of an engine."""

    def __init__(self) -> None:
        self.wander = Wander()
        self.page = False  # has the slowdown that lasts now earned one?
        self.restart = False
        self._seconds = 0.0  # for how long it has been beyond the bar
        self._worst = 0.0  # of the slowdown that lasts now
        self._recovered = 0.0  # worst slowdown that went by itself

    def follow(
        self, log_ratio: float, seconds: float, *, alarm: bool, doubt: bool, sure: bool
    ) -> None:
        """Take a block in. `sure`: the engine has met such a load; `doubt`: something may be wrong."""
        self.wander.add(log_ratio, seconds, well=not (doubt or alarm))
        if not alarm:
            self._recovered = max(self._recovered, self._worst)
            self.page = self.restart = False
            self._seconds = self._worst = 0.0
            return
        now = self.wander.now
        self._worst = max(self._worst, now)
        beyond = (
            now >= PAGE_LOG_RATIO if self.page else sure and self.wander.exceeded(PAGE_LOG_RATIO)
        )
        self._seconds = self._seconds + seconds if beyond else 0.0
        self.page = self.page or self._seconds >= PAGE_SECONDS
        out_of_reach = now >= self._recovered + RECOVERED_MARGIN
        self.restart = self.restart or (out_of_reach and self._seconds >= RESTART_SECONDS)

    def excuse(self) -> None:
        """What slows it down is known and not its own: that it goes again says nothing of the engine."""
        self._worst = 0.0

    def export_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "wander": self.wander.export_state(),
            "page": self.page,
            "restart": self.restart,
            "seconds": self._seconds,
            "worst": self._worst,
            "recovered": self._recovered,
        }

    def restore(self, state: stored.Stored) -> None:
        """Go on from there. Raises one of stored.DAMAGE."""
        self.wander.restore(state["wander"])
        self.page, self.restart = stored.flag(state["page"]), stored.flag(state["restart"])
        self._seconds, self._worst = stored.number(state["seconds"]), stored.number(state["worst"])
        self._recovered = stored.number(state["recovered"])
