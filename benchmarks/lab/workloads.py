"""Loads that change over hours: one model's after another's, and day and night."""

from collections.abc import Callable
from math import pi, sin

from vllm_watch.lab.workload import OpenLoop, Request, Workload

_DAY_SECONDS = 86_400.0


class Shifting(Workload):
    """One of several workloads at a time; which one may be changed at any time."""

    def __init__(self, *workloads: OpenLoop) -> None:
        self._workloads = workloads
        self._now = 0

    @property
    def per_second(self) -> float:
        return self._workloads[self._now].per_second

    def shift(self) -> None:
        """Go on with the next workload."""
        old = self._workloads[self._now]
        self._now = (self._now + 1) % len(self._workloads)
        new = self._workloads[self._now]
        new._now, new._next_t = old._now, None  # it begins where the other stands

    def arrivals(self, until_t: float) -> list[Request]:
        return self._workloads[self._now].arrivals(until_t)


def diurnal(
    low: float = 0.2, peak_t: float = 43_200.0, day_seconds: float = _DAY_SECONDS
) -> Callable[[float], float]:
    """A day: from `low` at night to 1 at `peak_t`."""

    def share(t: float) -> float:
        wave = sin(2 * pi * (t - peak_t) / day_seconds + pi / 2)
        return low + (1.0 - low) * (1.0 + wave) / 2

    return share
