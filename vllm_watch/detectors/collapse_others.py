"""Compares an engine with its siblings and with its predecessor.

Each comparison has `look`, once for each poll, and `judge`, which replaces a verdict by a worse one.
`judges` has the server's engines by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from statistics import median

from vllm_watch.detectors.base import FIRING, UNKNOWN, Evidence, Verdict
from vllm_watch.detectors.collapse_causes import SLOW_ENGINE
from vllm_watch.detectors.collapse_engine import EngineJudge
from vllm_watch.detectors.collapse_own import Work, share_of
from vllm_watch.detectors.consequences import (
    FORMER,
    LOSS_LOG_RATIO,
    PAGE,
    SIBLINGS,
    Shift,
    explained,
    finding,
    fulfilled,
    rule,
)
from vllm_watch.signals.baseline import SLOW_DEVIATIONS, Baseline, Models
from vllm_watch.signals.scales import (
    ALIKE,
    CONFIRMED,
    HALF_MINUTE_SECONDS,
    HOUR_SECONDS,
    MINUTE_SECONDS,
    MOMENT_SECONDS,
    TWICE,
)
from vllm_watch.signals.step_model import StepModel
from vllm_watch.signals.throughput import LEARNT_SECONDS
from vllm_watch.signals.wander import DEVIATIONS, scatter

Judges = Mapping[str, EngineJudge]


SIBLINGS_MAX = 8
"""An engine is compared with at most this many siblings. They are spread over all ranks, because
the ranks of one node may share a fault."""


_SPREAD_MIN = 0.015
"""The log ratio must also reach DEVIATIONS standard deviations among the siblings. A standard
deviation is assumed to be at least this."""


@dataclass
class _Beside:
    log_ratio: float = 0.0  # smoothed; compares the step time with the siblings' median
    seconds: float = 0.0
    at_s: float = 0.0
    since_s: float | None = None


class Siblings:
    """Finds an engine that takes longer for a step, or for the same work, than the others of its server."""

    def __init__(self) -> None:
        self._known: dict[str, _Beside] = {}
        self._names: tuple[str, ...] = ()
        self._siblings: Mapping[str, Sequence[str]] = {}

    def look(self, judges: Judges) -> None:
        for gone in self._known.keys() - judges.keys():
            del self._known[gone]
        if (names := tuple(judges)) != self._names:
            self._names, self._siblings = names, _spread(names)
        # With only one, neither engine can be the reference.
        if len(judges) <= CONFIRMED:
            return
        for engine in judges:
            self._compare(self._known.setdefault(engine, _Beside()), engine, judges)

    def _compare(self, beside: _Beside, engine: str, judges: Judges) -> None:
        own = judges[engine].baseline
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
            if (seconds := _seconds_at(judges[name].baseline.model_of(block), load)) is not None
        ]
        if len(known) < CONFIRMED:
            return
        ratio = log(block.step_seconds / median(known))
        share = share_of(block.seconds, beside.seconds)
        beside.log_ratio += share * (ratio - beside.log_ratio)
        beside.seconds = min(LEARNT_SECONDS, beside.seconds + block.seconds)

    def judge(self, judges: Judges, verdict: Verdict) -> Verdict:
        siblings = self._siblings.get(verdict.engine or "", ())
        if not siblings:
            return verdict
        if verdict.state == FIRING:
            return _beside(verdict, judges, siblings)
        engine = verdict.engine or ""
        found = self._slower_steps(judges, engine, siblings)
        return found or self._more_requests(judges, engine, siblings) or verdict

    def _slower_steps(self, judges: Judges, engine: str, siblings: Sequence[str]) -> Verdict | None:
        beside = self._known.get(engine)
        others = [
            each.log_ratio
            for name in siblings
            if (each := self._known.get(name)) is not None and each.seconds >= LEARNT_SECONDS
        ]
        if beside is None or beside.seconds < LEARNT_SECONDS or len(others) < CONFIRMED:
            return None
        # A slow engine makes its siblings seem fast, so a negative median is ignored.
        beyond = beside.log_ratio - max(0.0, median(others))
        limit = max(LOSS_LOG_RATIO, DEVIATIONS * max(_SPREAD_MIN, scatter(others)))
        if beyond < limit * (1.0 if beside.since_s is None else 0.5):
            beside.since_s = None
            return None
        if beside.since_s is None:
            beside.since_s = beside.at_s
        waits = judges[engine].harm.waits
        text = f"at equal load its steps take {exp(beyond):.2f} times as long as those of its {len(others)} sibling engines"
        return _slower(
            engine,
            SLOW_ENGINE,
            Evidence(name="siblings_step_time_ratio", value=exp(beyond), expected=1.0, text=text),
            Shift(SIBLINGS, beyond, beside.seconds, harmed=waits),
            "it may always have been this slow: its own steps show no change",
            since_seconds=beside.at_s - (beside.since_s or beside.at_s),
        )

    def _more_requests(
        self, judges: Judges, engine: str, siblings: Sequence[str]
    ) -> Verdict | None:
        own = judges[engine].own_work
        others = [work.now for name in siblings if (work := judges[name].own_work).known]
        if not own.known or len(others) < CONFIRMED:
            return None
        usual = Work(*map(median, zip(*others, strict=True)))
        # Routers spread requests unevenly.
        if not own.now.is_behind(usual, TWICE, ALIKE):
            own.behind_s = None
            return None
        own.behind_s = own.at_s if own.behind_s is None else own.behind_s
        requests, steps = own.now.times(usual)
        text = (
            f"it runs {requests:.1f} times as many requests at once as its {len(others)} sibling engines and produces"
            f" no more tokens per second; each token takes {steps:.1f} times as long"
        )
        said = Evidence(name="siblings_step_time_ratio", value=steps, expected=1.0, text=text)
        past = Evidence(name="own_past", value=None, text="it may always have been this slow")
        lasted_s = own.at_s - own.behind_s
        return finding(
            engine,
            SLOW_ENGINE,
            f": {text}",
            (said,),
            (past,),
            since_seconds=lasted_s,
            measure=steps,
        )


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


def _slower(
    engine: str | None,
    cause: str,
    said: Evidence,
    shift: Shift,
    past: str,
    *,
    since_seconds: float,
    present: bool = True,
) -> Verdict:
    reached = fulfilled(shift)
    return finding(
        engine,
        cause,
        f": {said.text}",
        (said, *explained(shift, reached)),
        (Evidence(name="own_past", value=None, text=past),),
        reached=reached,
        present=present,
        since_seconds=since_seconds,
        measure=exp(shift.log_ratio),
    )


def _beside(verdict: Verdict, judges: Judges, siblings: Sequence[str]) -> Verdict:
    own = _ratio(judges.get(verdict.engine or ""))
    others = [ratio for name in siblings if (ratio := _ratio(judges.get(name))) is not None]
    if own is None or not others or own < ALIKE:
        return verdict
    usual = median(others)
    who = "the other engine is" if len(others) == 1 else f"{len(others)} other engines are"
    text = f"{who} as fast as before (step time {usual:.1f} times the usual): only this one is slow"
    if usual >= ALIKE:
        text = f"{who} slow, too (step time {usual:.1f} times the usual): a shared part is slow (host, power, network), or they wait for each other"
    said = Evidence(name="siblings_step_time_ratio", value=usual, expected=1.0, text=text)
    if usual >= ALIKE:
        return replace(verdict, evidence_against=(*verdict.evidence_against, said))
    return replace(verdict, evidence_for=(*verdict.evidence_for, said))


def _ratio(judge: EngineJudge | None) -> float | None:
    """Return the step time, relative to that after the engine's start."""
    return exp(judge.quiet_ratio) if judge is not None and judge.compared else None


SLOW_LOG_RATIO = log(2.2)
"""A block is slow if its step time exceeds the predecessor's by this log ratio, and by SLOW_DEVIATIONS
standard deviations. A healthy process that warms up may be twice as slow for minutes."""


_PAGE = rule(PAGE, FORMER)


@dataclass
class _Life:
    former: Models
    process: int
    began_s: float
    versions: tuple[str | None, str | None]  # of vLLM, before and now
    at_s: float = 0.0
    compared_s: float = 0.0
    worked_s: float = 0.0
    slow_s: float = 0.0
    page_s: float = 0.0
    since_s: float | None = None
    log_ratio: float = 0.0
    normal_blocks: int = 0

    @property
    def found(self) -> bool:
        return self.slow_s >= MOMENT_SECONDS

    @property
    def released(self) -> bool:
        return None not in self.versions and self.versions[0] != self.versions[1]


class FormerLives:
    """Finds a process that is slower than its predecessor from the start, at equal load.

    Its GPU or a flag may have changed unnoticed, so no restart is advised.
    """

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def look(self, at_s: float, version: str | None, judges: Judges) -> None:
        """Add a poll. `version` is vLLM's, if known."""
        for engine, judge in judges.items():
            life, baseline, former = self._lives.get(engine), judge.baseline, judge.baseline.former
            former.version_now = version or former.version_now
            if life is None or life.process != former.ended:
                versions = former.version, former.version_now
                self._lives[engine] = _Life(former.models, former.ended, at_s, versions)
            elif former.models:
                # The mix of requests changes with the time of day.
                _compare(life, baseline, late=at_s - life.began_s > HOUR_SECONDS)
                former.surpassed = life.found
        for gone in self._lives.keys() - judges.keys():
            del self._lives[gone]

    def judge(self, at_s: float, verdict: Verdict) -> Verdict:
        life = self._lives.get(verdict.engine or "")
        if life is None or verdict.state == FIRING or not life.found:
            return verdict
        if at_s - life.compared_s > MINUTE_SECONDS:
            return replace(verdict, state=UNKNOWN)
        times = exp(life.log_ratio)
        since = "as before the restart"
        if life.released:
            since = f"since vLLM {life.versions[0]} was replaced by {life.versions[1]}"
        text = f"steps take {times:.1f} times as long {since}, at equal load"
        return _slower(
            verdict.engine,
            "slow_release" if life.released else SLOW_ENGINE,
            Evidence(name="former_step_time_ratio", value=times, expected=1.0, text=text),
            Shift(FORMER, life.log_ratio, life.page_s, harmed=True),
            "this process was never seen to be faster",
            present=life.normal_blocks == 0,
            since_seconds=max(0.0, at_s - (life.since_s or at_s)),
        )


def _compare(life: _Life, baseline: Baseline, *, late: bool) -> None:
    block = None if baseline.comparison is None else baseline.comparison.block
    if block is None or block.at_s <= life.at_s or block.long_prompts:
        return
    life.at_s = block.at_s
    tokens, usage = block.tokens_per_step, block.kv_usage or 0.0
    if not block.step_seconds or tokens is None:
        return
    life.worked_s += block.seconds
    former = life.former.get(block.apart)
    # The first requests compile kernels.
    if former is None or life.worked_s < HALF_MINUTE_SECONDS:
        return
    expected, deviation = former.seconds_of(tokens, usage), former.deviation(tokens, usage)
    if expected is None or not former.knows(tokens, usage):
        return
    if late and not life.found:
        return
    life.compared_s = block.at_s
    ratio = life.log_ratio = log(block.step_seconds / expected)
    doubt = SLOW_DEVIATIONS * deviation
    life.page_s = life.page_s + block.seconds if ratio > max(_PAGE.log_ratio, doubt) else 0.0
    if ratio > max(SLOW_LOG_RATIO, doubt):
        life.since_s = block.at_s - block.seconds if life.since_s is None else life.since_s
        life.slow_s, life.normal_blocks = life.slow_s + block.seconds, 0
    elif ratio < log(ALIKE):
        life.normal_blocks += 1
        if life.normal_blocks > 1 or not life.found:
            life.slow_s, life.since_s = 0.0, None
