"""Measures how long an engine waits for a CPU, and how much of a slowdown these waits explain.

If an engine waits for a share s of the time, a step takes 1 / (1 - s) times as long.
"""

from collections import deque
from math import log
from typing import ClassVar

from vllm_watch.samples.observation import EngineCpu
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.scales import HALF_MINUTE_SECONDS, MINUTE_SECONDS, MOMENT_SECONDS
from vllm_watch.signals.window import ENTRIES_MAX

SAME_SECONDS = 1e-3
"""Times that differ by less than this belong to the same poll, because sums are rounded."""

SMOOTHING = 0.3
"""Weight of a new block in the smoothed times."""


SHARE_MAX = 0.99
"""At most this share of a block counts as waiting. A wait is counted when it ends, so it may be longer than the block."""


class Waits:
    """Keeps one engine's CPU counters for the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._polls: deque[tuple[float, EngineCpu]] = deque(maxlen=ENTRIES_MAX)
        self._at_s = float("-inf")

    def clear(self) -> None:
        self._polls.clear()

    def add(self, at_s: float, cpu: EngineCpu | None) -> None:
        self._at_s = at_s
        if cpu is not None:
            if self._polls and cpu.waited_seconds < self._polls[-1][1].waited_seconds:
                self._polls.clear()
            self._polls.append((at_s, cpu))
        while self._polls and self._polls[0][0] < at_s - self._seconds:
            self._polls.popleft()

    def ratio(self) -> float | None:
        if len(self._polls) < 2 or self._polls[-1][0] != self._at_s:  # noqa: PLR2004
            return None
        (first_s, first), (last_s, last) = self._polls[0], self._polls[-1]
        return min(1.0, (last.waited_seconds - first.waited_seconds) / (last_s - first_s))

    def between(self, begin_s: float, end_s: float) -> tuple[EngineCpu, EngineCpu] | None:
        begin, end = self._at(begin_s), self._at(end_s)
        return None if begin is None or end is None else (begin, end)

    def _at(self, at_s: float) -> EngineCpu | None:
        near = (cpu for then_s, cpu in self._polls if abs(then_s - at_s) < SAME_SECONDS)
        return next(near, None)


@record
class Waited:
    """Current cost of waiting for a CPU."""

    explained_ratio: float  # share of log(slowdown) that waits explain
    share: float
    usual_share: float
    throttled_share: float | None  # share of the periods of the CPU limit
    who: str


class StepWaits(stored.Kept):
    """Follows one engine from block to block."""

    KEPT: ClassVar[stored.Fields] = dict.fromkeys(("waited_seconds", "step_seconds"), stored.amount)

    def __init__(self) -> None:
        self._waits = Waits(MINUTE_SECONDS)
        self._waited_seconds = self._step_seconds = 0.0  # while healthy
        self._now: tuple[float, ...] | None = None  # smoothed: waiting, actual, expected
        self._throttled: float | None = None
        self._who = ""
        self._unseen_seconds = 0.0

    def look(self, at_s: float, cpu: EngineCpu | None, *, known: bool) -> None:
        if not known:
            self._waits.clear()
        self._waits.add(at_s, cpu)

    def take(self, block: Block, expected_step_seconds: float | None, *, well: bool) -> None:
        ends = self._waits.between(block.at_s - block.seconds, block.at_s)
        if ends is None or not block.steps or block.step_seconds is None:
            self._unseen_seconds += block.seconds
            return
        self._unseen_seconds = 0.0
        a, b = ends
        waited = b.waited_seconds - a.waited_seconds
        if well:
            self._waited_seconds += waited
            self._step_seconds += block.steps * block.step_seconds
        expected = block.step_seconds if expected_step_seconds is None else expected_step_seconds
        step = (waited / block.steps, block.step_seconds, expected)
        before = self._now or step
        self._now = tuple(x + SMOOTHING * (y - x) for x, y in zip(before, step, strict=True))
        self._throttled = _share(a, b)
        self._who = f"{b.name or 'the engine'} (PID {b.pid})" if b.pid else "the engine"

    def judge(self) -> Waited | None:
        if self._now is None or self._step_seconds < MOMENT_SECONDS:
            return None
        # Readings are late on a host that lacks CPUs.
        if self._unseen_seconds > HALF_MINUTE_SECONDS:
            return None
        waited, takes, expected = self._now
        usual = min(SHARE_MAX, self._waited_seconds / self._step_seconds)
        share = min(SHARE_MAX, waited / takes)
        slower = log(takes / expected)
        explained = log((1.0 - usual) / (1.0 - share)) / slower if slower > 0.0 else 0.0
        return Waited(
            explained_ratio=min(1.0, max(0.0, explained)),
            share=share,
            usual_share=usual,
            throttled_share=self._throttled,
            who=self._who,
        )


def _share(a: EngineCpu, b: EngineCpu) -> float | None:
    if None in (a.quota_periods, b.quota_periods, a.throttled_periods, b.throttled_periods):
        return None
    periods = (b.quota_periods or 0.0) - (a.quota_periods or 0.0)
    throttled = (b.throttled_periods or 0.0) - (a.throttled_periods or 0.0)
    return throttled / periods if periods > 0.0 <= throttled else None
