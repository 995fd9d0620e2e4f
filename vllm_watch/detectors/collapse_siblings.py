"""Compares the step times of one server's engines at equal load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.detectors.consequences import SIBLINGS, Shift, explained, fulfilled
from vllm_watch.signals.baseline import Baseline
from vllm_watch.signals.step_model import StepModel
from vllm_watch.signals.wander import scatter

ALIKE = 1.2
"""An engine is slow if its step time is at least this multiple of the step time after its start. A changed mix of requests causes smaller ratios."""

LOSS_LOG_RATIO = log(1.12)
"""An engine is slow if its smoothed step time exceeds the siblings' median by this log ratio."""

SIBLINGS_MIN = 2
"""A comparison needs this many siblings. With only one, neither engine can be the reference."""

SIBLINGS_MAX = 8
"""An engine is compared with at most this many siblings. They are spread over all ranks, because
the ranks of one node may share a fault."""

SPREAD_DEVIATIONS = 5.0
"""The log ratio must also reach this many standard deviations among the siblings."""

SMOOTH_SECONDS = 300.0
"""Step times are averaged over this time, so that differences between requests even out."""

KNOWN_SECONDS = 600.0
"""A finding needs this many seconds with running requests."""

_SPREAD_MIN = 0.015
"""The standard deviation among siblings is assumed to be at least this."""


@dataclass
class _Beside:
    log_ratio: float = 0.0  # smoothed; compares the step time with the siblings' median
    seconds: float = 0.0
    at_s: float = 0.0
    since_s: float | None = None


class Siblings:
    """Compares the engines of one server."""

    def __init__(self) -> None:
        self._known: dict[str, _Beside] = {}
        self._engines: tuple[str, ...] = ()
        self._siblings: Mapping[str, Sequence[str]] = {}

    def look(self, baselines: Mapping[str, Baseline]) -> None:
        for gone in self._known.keys() - baselines.keys():
            del self._known[gone]
        if (engines := tuple(baselines)) != self._engines:
            self._engines, self._siblings = engines, _spread(engines)
        if len(baselines) <= SIBLINGS_MIN:
            return
        for engine, baseline in baselines.items():
            self._compare(self._known.setdefault(engine, _Beside()), engine, baseline, baselines)

    def of(self, engine: str | None) -> Sequence[str]:
        return self._siblings.get(engine or "", ())

    def _compare(
        self, beside: _Beside, engine: str, own: Baseline, baselines: Mapping[str, Baseline]
    ) -> None:
        block = None if own.comparison is None else own.comparison.block
        if block is None or block.at_s <= beside.at_s or block.long_prompts:
            return
        beside.at_s = block.at_s
        if not block.step_seconds or block.tokens_per_step is None:
            return
        load = block.tokens_per_step, block.kv_usage or 0.0
        known = [
            seconds
            for name in self._siblings[engine]
            if (seconds := _seconds_at(baselines[name].model_of(block), load)) is not None
        ]
        if len(known) < SIBLINGS_MIN:
            return
        ratio = log(block.step_seconds / median(known))
        share = share_of(block.seconds, beside.seconds)
        beside.log_ratio += share * (ratio - beside.log_ratio)
        beside.seconds = min(KNOWN_SECONDS, beside.seconds + block.seconds)

    def judge(self, verdict: Verdict, ratios: Mapping[str, float], *, waits: bool) -> Verdict:
        """`ratios` compare each engine's step time with that after its start."""
        siblings = self.of(verdict.engine)
        if verdict.state == FIRING:
            return _beside(verdict, ratios, siblings)
        beside = self._known.get(verdict.engine or "")
        others = [
            each.log_ratio
            for name in siblings
            if (each := self._known.get(name)) is not None and each.seconds >= KNOWN_SECONDS
        ]
        if beside is None or beside.seconds < KNOWN_SECONDS or len(others) < SIBLINGS_MIN:
            return verdict
        # A slow engine makes its siblings seem fast, so a negative median is ignored.
        beyond = beside.log_ratio - max(0.0, median(others))
        limit = _limit(others) * (1.0 if beside.since_s is None else 0.5)
        if beyond < limit:
            beside.since_s = None
            return verdict
        if beside.since_s is None:
            beside.since_s = beside.at_s
        return _slower(
            verdict, beside, Shift(SIBLINGS, beyond, beside.seconds, harmed=waits), len(others)
        )


def share_of(seconds: float, before_s: float) -> float:
    """Return a block's weight in a mean over SMOOTH_SECONDS."""
    return max(1.0 - exp(-seconds / SMOOTH_SECONDS), seconds / (before_s + seconds))


def _spread(engines: Sequence[str]) -> Mapping[str, Sequence[str]]:
    count = len(engines)
    others = min(SIBLINGS_MAX, count - 1)
    steps = [1 + number * (count - 1) // others for number in range(others)]
    return {
        engine: [engines[(place + step) % count] for step in steps]
        for place, engine in enumerate(engines)
    }


def _seconds_at(model: StepModel | None, load: tuple[float, float]) -> float | None:
    if model is None or not model.ready:
        return None
    if model.familiar(*load):
        return model.seconds_of(*load)
    return model.met.longest_seconds(*load)


def _limit(others: Sequence[float]) -> float:
    return max(LOSS_LOG_RATIO, SPREAD_DEVIATIONS * max(_SPREAD_MIN, scatter(others)))


def _slower(verdict: Verdict, beside: _Beside, shift: Shift, count: int) -> Verdict:
    times, reached = exp(shift.log_ratio), fulfilled(shift)
    text = f"at equal load its steps take {times:.2f} times as long as those of its {count} sibling engines"
    said = Evidence(name="siblings_step_time_ratio", value=times, expected=1.0, text=text)
    past = "it may always have been this slow: its own steps show no change"
    return replace(
        verdict,
        state=FIRING,
        cause="slow_engine",
        severity="page" if reached else "ticket",
        summary=f"Engine {verdict.engine}: {text}",
        evidence_for=(said, *explained(shift, reached)),
        evidence_against=(Evidence(name="own_past", value=None, text=past),),
        since_seconds=beside.at_s - (beside.since_s or beside.at_s),
        measure=times,
    )


def _beside(verdict: Verdict, ratios: Mapping[str, float], siblings: Sequence[str]) -> Verdict:
    own = ratios.get(verdict.engine or "")
    others = [ratios[name] for name in siblings if name in ratios]
    if own is None or not others or own < ALIKE:
        return verdict
    usual = median(others)
    alike = usual >= ALIKE
    who = "the other engine is" if len(others) == 1 else f"{len(others)} other engines are"
    text = f"{who} as fast as before (step time {usual:.1f} times the usual): only this one is slow"
    if alike:
        text = f"{who} slow, too (step time {usual:.1f} times the usual): a shared part is slow (host, power, network), or they wait for each other"
    said = Evidence(name="siblings_step_time_ratio", value=usual, expected=1.0, text=text)
    if alike:
        return replace(verdict, evidence_against=(*verdict.evidence_against, said))
    return replace(verdict, evidence_for=(*verdict.evidence_for, said))
