"""Compares current latencies and queues with the worst minutes of the healthy engine."""

from math import exp
from typing import Any

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

HARM_TIMES = 1.5
"""Users are harmed if a latency is above this many times the usual maximum."""

USUAL = 3
"""Healthy minutes are ranked from the worst. The minute with this rank gives the usual maximum."""

MINUTE_SECONDS = 60.0
"""Usual latencies are averages over this many seconds."""

SMOOTH_SECONDS = 20.0
"""Smoothing time of the current latencies, long enough for a few answers."""


class Harm:
    """Follows one engine's latencies and queue."""

    def __init__(self) -> None:
        self._now: list[float] = []  # step seconds, first-token seconds, requests waiting
        self._sums, self._seconds, self._well = [0.0, 0.0, 0.0], 0.0, True
        self._worst: list[list[float]] = [[], [], []]  # healthy minutes, worst first

    def add(self, block: Block, *, well: bool) -> None:
        """Add a block. Minutes with a queue are not learnt, because after an outage all clients return at once."""
        if not block.step_seconds:
            return
        first = (
            block.first_token_seconds / block.prompts
            if block.prompts and block.first_token_seconds
            else None
        )
        before = self._now[1] if self._now else 0.0
        values = [block.step_seconds, before if first is None else first, block.waiting_min]
        share = 1.0 - exp(-block.seconds / SMOOTH_SECONDS)
        self._now = [a + share * (b - a) for a, b in zip(self._now or values, values, strict=True)]
        self._sums = [a + b * block.seconds for a, b in zip(self._sums, values, strict=True)]
        self._seconds, self._well = (
            self._seconds + block.seconds,
            self._well and well and block.waiting_min < 1.0,
        )
        if self._seconds < MINUTE_SECONDS:
            return
        if self._well:
            for worst, total in zip(self._worst, self._sums, strict=True):
                worst.append(total / self._seconds)
                worst.sort(reverse=True)
                del worst[USUAL:]
        self._sums, self._seconds, self._well = [0.0, 0.0, 0.0], 0.0, True

    @property
    def waits(self) -> bool:
        return bool(self._now) and self._now[2] >= 1.0

    @property
    def felt(self) -> bool:
        if len(self._worst[0]) < USUAL or not self._now:
            return True
        step, first, waiting = (
            now > HARM_TIMES * worst[-1] for now, worst in zip(self._now, self._worst, strict=True)
        )
        return step or (first and self._worst[1][-1] > 0.0) or (waiting and self.waits)

    def export_state(self) -> dict[str, Any]:
        return {"now": list(self._now), "worst": [list(each) for each in self._worst]}

    def restore(self, state: stored.Stored) -> None:
        now, worst = stored.numbers(state["now"]), [stored.numbers(each) for each in state["worst"]]
        if len(now) not in (0, len(self._worst)) or len(worst) != len(self._worst):
            raise ValueError("three measures are kept")
        self._now, self._worst = list(now), [list(each)[:USUAL] for each in worst]
