"""An engine that does what it always did, and needs far more requests at once to do it.

A slow engine keeps its requests longer, so more of them run at once (Little's law: requests running = rate · time in
the engine). Where steps scatter widely that load is often one that it never had, and what steps should take there is a
guess. But the same tokens per second, of requests with contexts as long, once took a third of the requests.
"""

from math import exp, floor, log

from vllm_watch.detectors.base import Evidence
from vllm_watch.detectors.collapse_equal_work import CONTEXT_RATIO_MAX, WORK_RATIO_MAX
from vllm_watch.detectors.collapse_siblings import KNOWN_SECONDS, share_of
from vllm_watch.signals.blocks import Block

GRAIN = log(1.5)
"""Tokens per second within so much (log) of each other are one rate of work."""

RATES_MAX = 32
"""Rates of work that are remembered: the most and the least of them differ by a factor of 400,000."""

USUAL_SECONDS = 4 * 3600.0
"""What a rate of work takes is averaged over so much of it."""

TIMES_MIN = 3.0
"""Requests running, and step time, ÷ the usual from which that is said: adapters, grammars and images cost up to half
as much again, and what they make a batch grow by as much once more."""

LEARNT_TIMES = 1.5
"""... and up to which it is learnt: what becomes slow must not become the usual on its way."""

PRESENT_TIMES, PRESENT_SECONDS = 2.0, 30.0
"""The last half minute must show it, too: the longer mean is still high when an engine is well again, and works off a queue."""

HELD_TIMES, HELD_WORK_RATIO = 1.5, 1.5
"""What was found holds while the last half minute is beyond the first, at no more than the second of the usual work."""

Work = tuple[float, float, float, float, float]
"""Requests running, tokens per second, prompt tokens per second, KV usage, step seconds."""


class OwnWork:
    """Follows one process."""

    def __init__(self) -> None:
        self._seconds = 0.0  # of the means that follow
        self._now: Work = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._lately: Work = self._now
        self._usual: dict[int, tuple[float, Work]] = {}  # by rate of work: seconds, means
        self.found: Evidence | None = None

    def add(self, block: Block) -> None:
        """Take a block in."""
        if not (block.step_seconds and block.generated and block.running and block.kv_usage):
            return
        seen = (
            block.running,
            block.generated,
            block.prompted or 0.0,
            block.kv_usage,
            block.step_seconds,
        )
        self._now = _mixed(self._now, seen, share_of(block.seconds, self._seconds))
        self._lately = _mixed(self._lately, seen, 1.0 - exp(-block.seconds / PRESENT_SECONDS))
        self._seconds += block.seconds
        if self._seconds < KNOWN_SECONDS:
            return
        rate = floor(log(self._now[1]) / GRAIN)
        seconds, usual = self._usual.get(rate, (0.0, self._now))
        known = seconds >= KNOWN_SECONDS
        lasts = known and _behind(self._now, usual, TIMES_MIN, WORK_RATIO_MAX)
        least, most = (
            (HELD_TIMES, HELD_WORK_RATIO) if self.found else (PRESENT_TIMES, WORK_RATIO_MAX)
        )
        present = lasts and _behind(self._lately, usual, least, most)
        self.found = self._evidence(usual) if present else None
        odd = known and _times(self._now, usual) >= LEARNT_TIMES
        if not odd and (rate in self._usual or len(self._usual) < RATES_MAX):
            seconds = min(seconds + block.seconds, USUAL_SECONDS)
            self._usual[rate] = seconds, _mixed(usual, self._now, block.seconds / seconds)

    def _evidence(self, usual: Work) -> Evidence:
        requests, steps = self._now[0] / usual[0], self._now[4] / usual[4]
        text = (
            f"{requests:.1f} times as many requests at once as usual for the same tokens per second;"
            f" each step takes {steps:.1f} times as long"
        )
        return Evidence(name="step_time_ratio", value=steps, expected=1.0, text=text)


def _times(now: Work, usual: Work) -> float:
    """Requests running, or step time, ÷ the usual: the lesser."""
    return min(now[0] / usual[0], now[4] / usual[4])


def _behind(now: Work, usual: Work, times: float, more: float) -> bool:
    """Does it do at most so much `more` than usual, with contexts no longer, and need so many `times` as much for it?"""
    no_more = max(now[1] / usual[1], now[2] / usual[2] if usual[2] else 1.0) <= more
    alike = now[3] / now[0] <= CONTEXT_RATIO_MAX * usual[3] / usual[0]
    return no_more and alike and _times(now, usual) >= times


def _mixed(was: Work, now: Work, share: float) -> Work:
    a, b, c, d, e = (old + share * (new - old) for old, new in zip(was, now, strict=True))
    return a, b, c, d, e
