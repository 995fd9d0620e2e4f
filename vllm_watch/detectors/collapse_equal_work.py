"""An engine that does what its siblings do, and needs far more requests at once to do it.

One that was slow from the first look never runs at its siblings' load: requests stay longer, so more of them run. But
engines alike that are given equal work come to equal load (Little's law: requests running = rate · time in the
engine; with steps of a + b · requests, one rate has one number of requests). Where the same tokens per second, of
requests with contexts as long, take a multiple of the requests, the steps are what is slow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.detectors.collapse_siblings import KNOWN_SECONDS, SIBLINGS_MIN, share_of
from vllm_watch.signals.baseline import Baseline

WORK_RATIO_MAX = 1.15
"""Tokens per second ÷ the siblings' up to which an engine does no more than they."""

CONTEXT_RATIO_MAX = 1.3
"""KV cache per running request ÷ the siblings' up to which its requests are like theirs."""

TIMES_MIN = 2.0
"""Requests running, and step time, ÷ the siblings' from which that is said: routers spread requests unevenly."""


@dataclass
class _Work:
    """What one engine does, smoothed over SMOOTH_SECONDS of time."""

    seconds: float = 0.0
    at_s: float = 0.0  # of the last block
    prompted: float = 0.0  # tokens per second
    generated: float = 0.0
    running: float = 0.0  # requests
    kv_usage: float = 0.0
    step_seconds: float = 0.0
    since_s: float | None = None  # when it was found to be slow

    def take(self, baseline: Baseline) -> None:
        block = None if baseline.comparison is None else baseline.comparison.block
        if block is None or block.at_s <= self.at_s or block.step_seconds is None:
            return
        now = (
            block.prompted or 0.0, block.generated, block.running, block.kv_usage or 0.0, block.step_seconds,
        )  # fmt: skip
        share = share_of(block.seconds, self.seconds)
        was = self.prompted, self.generated, self.running, self.kv_usage, self.step_seconds
        mixed = [a + share * (b - a) for a, b in zip(was, now, strict=True)]
        self.prompted, self.generated, self.running, self.kv_usage, self.step_seconds = mixed
        self.seconds, self.at_s = self.seconds + block.seconds, block.at_s


class EqualWork:
    """Follows the engines of one server."""

    def __init__(self) -> None:
        self._known: dict[str, _Work] = {}

    def look(self, baselines: Mapping[str, Baseline]) -> None:
        """Take the blocks in that this look has completed."""
        if len(baselines) <= SIBLINGS_MIN:
            return
        self._known = {name: self._known.get(name, _Work()) for name in baselines}
        for name, baseline in baselines.items():
            self._known[name].take(baseline)

    def judge(self, verdict: Verdict, siblings: Sequence[str]) -> Verdict:
        """The verdict on one engine with what its siblings need for the same work."""
        own = self._known.get(verdict.engine or "")
        if own is None or verdict.state == FIRING:
            return verdict
        others = [each for name in siblings if (each := self._known.get(name)) and _is_known(each)]
        if not _is_known(own) or len(others) < SIBLINGS_MIN or not _is_behind(own, others):
            own.since_s = None
            return verdict
        own.since_s = own.at_s if own.since_s is None else own.since_s
        requests = own.running / median(each.running for each in others)
        steps = own.step_seconds / median(each.step_seconds for each in others)
        text = (
            f"it needs {requests:.1f} times as many requests at once for no more tokens per second than its"
            f" {len(others)} sibling engines; each token takes {steps:.1f} times as long"
        )
        said = Evidence(name="siblings_step_time_ratio", value=steps, expected=1.0, text=text)
        past = Evidence(
            name="own_past", value=None, text="it was never seen to be as fast as they are"
        )
        return replace(
            verdict, state=FIRING, cause="slow_engine", severity="ticket",
            summary=f"Engine {verdict.engine}: {text}", evidence_for=(said,), evidence_against=(past,),
            since_seconds=own.at_s - own.since_s, measure=steps,
        )  # fmt: skip


def _is_known(work: _Work) -> bool:
    return work.seconds >= KNOWN_SECONDS and min(work.running, work.kv_usage) > 0.0


def _is_behind(own: _Work, others: Sequence[_Work]) -> bool:
    if own.prompted > WORK_RATIO_MAX * median(each.prompted for each in others):
        return False
    if own.generated > WORK_RATIO_MAX * median(each.generated for each in others):
        return False
    context = median(each.kv_usage / each.running for each in others)
    if own.kv_usage / own.running > CONTEXT_RATIO_MAX * context:
        return False
    times = (
        own.running / median(each.running for each in others),
        own.step_seconds / median(each.step_seconds for each in others),
    )
    return min(times) >= TIMES_MIN
