"""A cumulative histogram."""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from math import floor

from vllm_watch.samples.engine import Histogram


class Buckets:
    """The counts per bucket. They are cumulated only when read."""

    __slots__ = ("_snapshot", "bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` ascend and end with +Inf."""
        self.bounds = bounds
        self.counts = [0.0] * len(bounds)
        self.sum = 0.0
        self._snapshot: Histogram | None = None

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self._snapshot = None

    def observe_all(self, values: Iterable[float]) -> None:
        bounds, counts, total = self.bounds, self.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1.0
            total += value
        self.sum += total
        self._snapshot = None

    def observe_ramp(self, first: float, slope: float, steps: int, times: int) -> None:
        """Observe `steps` values, each `times` times. The first is `first`, and each later one is larger by `slope`."""
        bounds, counts = self.bounds, self.counts
        last = first + slope * (steps - 1)
        low = bisect_left(bounds, first)
        if last <= bounds[low]:
            counts[low] += steps * times
        else:
            done = 0
            for index in range(low, bisect_left(bounds, last)):
                under = min(steps, floor((bounds[index] - first) / slope) + 1)
                counts[index] += (under - done) * times
                done = under
            counts[bisect_left(bounds, last)] += (steps - done) * times
        self.sum += (first + last) * 0.5 * steps * times
        self._snapshot = None

    def snapshot(self) -> Histogram:
        if self._snapshot is None:
            cumulative = tuple(accumulate(self.counts))
            self._snapshot = Histogram(cumulative[-1], self.sum, self.bounds, cumulative)
        return self._snapshot
