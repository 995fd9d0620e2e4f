"""How much of an engine's time goes by while it waits for a CPU, and how much of a slowdown that explains.

The engine core is one busy loop on the host: a moment in which one of its threads is ready and gets no CPU
is a moment by which the step under way ends later. So a step that waits for the share s of its time takes
1 / (1 - s) times as long as it runs. When the engine was fresh that was 1 / (1 - s0); what it grew by is what
the waiting did, and the rest of the slowdown at this load came about while it ran. What is found that way is
rather too little: only the thread that waited longest is counted, and who waits for it in turn (a GPU, other
workers) loses more.
"""

from collections import deque
from dataclasses import dataclass
from math import log
from typing import Any

from vllm_watch.samples.cpu import EngineCpu
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block

LOOKS_MAX = 4096
"""Bound of a window, as in signals/window.py: an hour at one look a second."""

BLOCK_WINDOW_SECONDS = 60.0
"""Looks kept to find a block's first one: a block lasts 8 s at most, or one interval of scrapes."""

SAME_SECONDS = 1e-3
"""Two times nearer than this are one look's: times are added and subtracted on the way."""

SMOOTHING = 0.3
"""Weight of the newest block, as for step times: blocks of 2 s scatter, and both must scatter alike."""

UNSEEN_SECONDS_MAX = 30.0
"""What was found holds on for so long while the waits are not seen: where CPUs are short, a look at them may itself
come too late, and just then an engine must not be called slow for want of it."""

SHARE_MAX = 0.99
"""Nobody waits for longer than that and still takes steps; a wait is counted when it ends, so a block may show more."""

USUAL_SECONDS_MIN = 10.0
"""Seconds of steps when well from which it is known how long the engine waits then: five blocks at least."""


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    cpu: EngineCpu


class Waits:
    """The counts of one engine over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._looks: deque[_Look] = deque(maxlen=LOOKS_MAX)
        self._at_s = float("-inf")  # of the newest look, seen or not

    def clear(self) -> None:
        """Forget everything."""
        self._looks.clear()

    def add(self, at_s: float, cpu: EngineCpu | None) -> None:
        """Add the newest look; None: its processes were not seen at it."""
        self._at_s = at_s
        if cpu is not None:
            if self._looks and cpu.waited_seconds < self._looks[-1].cpu.waited_seconds:
                self._looks.clear()
            self._looks.append(_Look(at_s, cpu))
        while self._looks and self._looks[0].at_s < at_s - self._seconds:
            self._looks.popleft()

    def ratio(self) -> float | None:
        """Share of the window in which it waited, 0 to 1."""
        if len(self._looks) < 2 or self._looks[-1].at_s != self._at_s:  # noqa: PLR2004
            return None
        first, last = self._looks[0], self._looks[-1]
        waited = last.cpu.waited_seconds - first.cpu.waited_seconds
        return min(1.0, waited / (last.at_s - first.at_s))

    def between(self, begin_s: float, end_s: float) -> tuple[EngineCpu, EngineCpu] | None:
        """The counts at two looks; None where it was not seen at both, or its counts began anew."""
        begin, end = self._at(begin_s), self._at(end_s)
        return None if begin is None or end is None else (begin, end)

    def _at(self, at_s: float) -> EngineCpu | None:
        near = (look.cpu for look in self._looks if abs(look.at_s - at_s) < SAME_SECONDS)
        return next(near, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What waiting for a CPU costs an engine now."""

    explained_ratio: float  # of the slowdown (its logarithm), 0 to 1
    share: float  # of the time its steps take
    usual_share: float  # ... when it was well
    throttled_share: float | None  # of the periods of its CPU limit; None: no limit is seen
    who: str  # the process that waited longest


class StepWaits:
    """Follows one engine from block to block."""

    def __init__(self) -> None:
        self._waits = Waits(BLOCK_WINDOW_SECONDS)
        self._usual = (0.0, 0.0)  # seconds waited, and of steps, when it was well
        self._now: tuple[float, ...] | None = None  # of a step, smoothed: waited, taken, expected
        self._throttled: float | None = None
        self._who = ""
        self._unseen_seconds = 0.0  # since the last block that was seen

    def look(self, at_s: float, cpu: EngineCpu | None, *, known: bool) -> None:
        """Take a look in. `known`: is it known how long ago the look before was?"""
        if not known:
            self._waits.clear()
        self._waits.add(at_s, cpu)

    def take(self, block: Block, expected_step_seconds: float | None, *, well: bool) -> None:
        """Take a block in that these looks completed. `well`: nothing is amiss with the engine."""
        ends = self._waits.between(block.at_s - block.seconds, block.at_s)
        if ends is None or not block.steps or block.step_seconds is None:
            self._unseen_seconds += block.seconds
            return
        self._unseen_seconds = 0.0
        a, b = ends
        waited = b.waited_seconds - a.waited_seconds
        if well:
            self._usual = self._usual[0] + waited, self._usual[1] + block.steps * block.step_seconds
        expected = block.step_seconds if expected_step_seconds is None else expected_step_seconds
        step = (waited / block.steps, block.step_seconds, expected)
        before = self._now or step
        self._now = tuple(x + SMOOTHING * (y - x) for x, y in zip(before, step, strict=True))
        self._throttled = _share(a, b)
        self._who = f"{b.name or 'the engine'} (PID {b.pid})" if b.pid else "the engine"

    def judge(self) -> Waited | None:
        """What the waiting explains by now; None where it was not seen, or is not known of when all was well."""
        if self._now is None or self._usual[1] < USUAL_SECONDS_MIN:
            return None
        if self._unseen_seconds > UNSEEN_SECONDS_MAX:
            return None
        waited, takes, expected = self._now
        usual = min(SHARE_MAX, self._usual[0] / self._usual[1])
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

    def export_state(self) -> dict[str, Any]:
        """Return how long it waits when it is well, as plain values."""
        return {"waited_seconds": self._usual[0], "step_seconds": self._usual[1]}

    def restore(self, state: stored.Stored) -> None:
        """Go on with that. Raises one of stored.DAMAGE."""
        waited = stored.number(state["waited_seconds"], 0.0)
        self._usual = waited, stored.number(state["step_seconds"], 0.0)


def _share(a: EngineCpu, b: EngineCpu) -> float | None:
    """Of the periods of its CPU limit, those in which it was used up before their end."""
    if None in (a.quota_periods, b.quota_periods, a.throttled_periods, b.throttled_periods):
        return None
    periods = (b.quota_periods or 0.0) - (a.quota_periods or 0.0)
    throttled = (b.throttled_periods or 0.0) - (a.throttled_periods or 0.0)
    return throttled / periods if periods > 0.0 <= throttled else None
