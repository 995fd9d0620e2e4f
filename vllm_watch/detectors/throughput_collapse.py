"""An engine that does far less than it did when fresh, at equal load.

Its only yardstick is itself: the step time it had at this load, and the work it got done with so much
of its KV cache in use. A load drop, a burst, a longer prompt or saturation changes neither.
Source: vLLM #42484, #16985 (slow until restarted), #45387 (pages held); the mechanisms are in
signals/baseline.py, the causes in collapse_causes.py.
Runbook: docs/detectors/throughput_collapse.md
"""

from collections.abc import Sequence
from math import exp
from typing import Any

from pydantic import BaseModel, ConfigDict

from vllm_watch.detectors import collapse_causes as causes
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import ServerSample
from vllm_watch.signals import kept
from vllm_watch.signals.baseline import Baseline, Comparison
from vllm_watch.signals.life import Life, life_of

KIND = "throughput_collapse"

UNREAD_SHARE = 0.5
"""Of the pages in use, less than this share is read in each step: the rest belongs to no running request."""

UNREAD_LOG_RATIO = 0.1
"""... and steps must be that much shorter (log) than the pages in use would make them, for the claim to be sure,"""

UNREAD_SECONDS = 15.0
"""... for so long."""

UNREAD_DEVIATIONS = 1.5
"""... and so many standard deviations of the model at this load, which it may never have met."""

CAUSE_HOLD_SECONDS = 20.0
"""A cause is replaced when another one has been found for so long: one long request that ends among few
others looks like long requests all around."""

QUEUE_GROWTH, QUEUE_REQUESTS_MIN = 2.0, 5.0
"""Thrash pages when the queue has doubled since it began (five requests count as none)."""

_PAGE = frozenset(
    (causes.KV_PINNING, causes.KV_LEAK, causes.SLOW_ENGINE, causes.THERMAL, causes.NEIGHBOUR)
)
_RESTART = frozenset((causes.KV_LEAK, causes.SLOW_ENGINE))


STATE_VERSION = 1

KEPT_SECONDS = 6 * 3600.0
"""What was learnt of a process is its yardstick again when nobody watched it for so long at most. Beyond
that another time of the day has come, with another mix of requests; a minute of work measures it anew."""


class Settings(BaseModel):
    """Nothing to tune: every threshold is learnt from the engine or has its reason in signals/baseline.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EngineJudge:
    """Follows one engine."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.baseline = Baseline()
        self._creep = causes.Creep()
        self._finished = causes.Finished()
        self._cause: causes.Cause | None = None  # of the alarm that holds
        self._other_seconds = 0.0  # for how long another cause was found
        self._unread_seconds = 0.0  # for how long pages in use were read by nobody
        self._restart = False
        self._rise_seconds: float | None = None  # as it was when the engine began to starve
        self._starving = False
        self._quiet_ratio = 0.0  # smoothed log ratio of step time
        self._pids: frozenset[int] = frozenset()
        self._waiting_first = 0.0  # when the engine began to starve
        self._queue_grew = False
        self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=engine)

    def update(
        self, at_s: float, known: bool, sample: EngineSample, gpus: Sequence[GpuSample] | None
    ) -> Verdict:
        """Take a look in; the verdict changes at the end of a block only."""
        comparison = self.baseline.update(at_s, sample, known=known)
        if comparison is not None:
            self._follow(at_s, comparison, gpus)
            self.verdict = self._judge(comparison, gpus)
        elif self.baseline.comparison is None:
            self.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        return self.verdict

    def export_state(self) -> dict[str, Any]:
        """Return what was learnt of this engine as plain values."""
        return {
            "baseline": self.baseline.export_state(),
            "creep": self._creep.export_state(),
            "finished": self._finished.export_state(),
            "cause": None if self._cause is None else self._cause.name,
            "rise_seconds": self._rise_seconds,
            "starving": self._starving,
            "quiet_ratio": self._quiet_ratio,
            "pids": sorted(self._pids),
            "waiting_first": self._waiting_first,
            "queue_grew": self._queue_grew,
            "restart": self._restart,
        }

    def restore(self, state: kept.Kept, away_seconds: float) -> None:
        """Go on with what was learnt of this very process. Raises one of kept.DAMAGE."""
        self._creep.restore(state["creep"])
        self._finished.restore(state["finished"])
        cause = kept.maybe_text(state["cause"])
        self._cause = None if cause is None else causes.Cause(cause, ())
        self._rise_seconds = kept.maybe(state["rise_seconds"])
        self._starving = kept.flag(state["starving"])
        self._quiet_ratio = kept.number(state["quiet_ratio"])
        self._pids = frozenset(kept.whole(pid) for pid in state["pids"])
        self._waiting_first = kept.number(state["waiting_first"])
        self._queue_grew = kept.flag(state["queue_grew"])
        self._restart = kept.flag(state["restart"])
        self.baseline.restore(state["baseline"], away_seconds)

    def _follow(
        self, at_s: float, comparison: Comparison, gpus: Sequence[GpuSample] | None
    ) -> None:
        block = comparison.block
        self._finished.add(block)
        if comparison.slow_log_ratio is not None:
            self._quiet_ratio += 0.3 * (comparison.slow_log_ratio - self._quiet_ratio)
        unexplained = self._unexplained(comparison)
        if unexplained is not None:
            self._creep.note(at_s, unexplained)
        if not self.baseline.starved.level:
            self._starving = False
        elif not self._starving and unexplained is not None:
            self._starving, self._rise_seconds = True, self._creep.rise_seconds(unexplained)
            self._finished, self._waiting_first = causes.Finished(), block.waiting
        if gpus is not None and max(self.baseline.slow.level, self.baseline.starved.level) <= 0.0:
            self._pids = causes.pids_of(gpus)

    def _unexplained(self, comparison: Comparison) -> float | None:
        """Share of the KV cache in use beyond what as many running requests used when fresh."""
        block, past = comparison.block, self.baseline.throughput
        if not past.ready or block.kv_usage is None or past.running.value <= 0.0:
            return None
        return block.kv_usage - block.running * past.kv_usage.value / past.running.value

    def _judge(self, comparison: Comparison, gpus: Sequence[GpuSample] | None) -> Verdict:
        if not (comparison.slow or comparison.starved):
            self._cause, self._unread_seconds = None, 0.0
            self._restart = self._queue_grew = False
        if comparison.slow and comparison.slow_log_ratio is None and not comparison.starved:
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)  # idle: cannot be judged
        if comparison.slow:
            return self._slow(comparison, gpus)
        if comparison.starved:
            return self._starved(comparison)
        if not comparison.known:
            return Verdict(state=UNKNOWN, kind=KIND, engine=self.engine)
        return Verdict(state=CLEAR, kind=KIND, engine=self.engine)

    def _slow(self, comparison: Comparison, gpus: Sequence[GpuSample] | None) -> Verdict:
        if self._cause is None or (comparison.slow_now and self._cause.name in causes.VAGUE):
            self._cause = causes.of_slow_steps(gpus, self._pids)
        cause = self._cause
        times = exp(self._quiet_ratio)
        text = f"steps take {times:.1f} times as long as they took at this load when the engine was fresh"
        slow = Evidence(name="step_time_ratio", value=times, expected=1.0, text=text)
        return self._verdict(
            cause.name,
            f"Engine {self.engine}: {text}",
            (slow, *cause.evidence_for),
            cause.evidence_against,
        )

    def _starved(self, comparison: Comparison) -> Verdict:
        block = comparison.block
        self._unread_seconds = (
            self._unread_seconds + block.seconds if self._unread(comparison) else 0.0
        )
        self._restart = self._restart or self._unread_seconds >= UNREAD_SECONDS
        grown = QUEUE_GROWTH * (self._waiting_first + QUEUE_REQUESTS_MIN)
        self._queue_grew = self._queue_grew or block.waiting >= grown
        cause = self._held(causes.of_starvation(self._facts(comparison)), comparison)
        done = comparison.throughput_ratio or 0.0
        text = f"{done:.0%} of its usual throughput, with {block.waiting:.0f} requests waiting"
        few = Evidence(
            name="requests_running", value=block.running, expected=comparison.running_expected,
            text=f"{block.running:.0f} requests run with {block.kv_usage or 0:.0%} of the KV cache in use;"
            f" {comparison.running_expected or 0:.0f} did when fresh",
        )  # fmt: skip
        ratio = Evidence(name="throughput_ratio", value=done, expected=1.0, text=text)
        return self._verdict(
            cause.name,
            f"Engine {self.engine}: {text}",
            (ratio, few, *cause.evidence_for),
            cause.evidence_against,
        )

    def _held(self, found: causes.Cause, comparison: Comparison) -> causes.Cause:
        """The cause changes only when another one was found for a while, in blocks that speak of it."""
        if self._cause is None or found.name == self._cause.name:
            self._cause, self._other_seconds = found, 0.0
        elif comparison.starved_now:
            self._other_seconds += comparison.block.seconds
            if self._other_seconds >= CAUSE_HOLD_SECONDS:
                self._cause, self._other_seconds = found, 0.0
        return self._cause

    def _facts(self, comparison: Comparison) -> dict[str, float | None]:
        was, length = self.baseline.throughput.request_tokens(), self._finished.tokens
        return {
            "length_ratio": None if was is None or length is None else length / was,
            "preempted_share": self._finished.preempted_share,
            "unexplained": self._unexplained(comparison),
            "rise_seconds": self._rise_seconds,
        }

    def _unread(self, comparison: Comparison) -> bool:
        """Are most pages in use held by nobody who runs? Then steps do not take the time to read them."""
        block, model = comparison.block, self.baseline.model
        a, b, c = model.coefficients
        sure = max(UNREAD_LOG_RATIO, UNREAD_DEVIATIONS * (comparison.deviation or 0.0))
        if -self._quiet_ratio < sure or not block.kv_usage or c <= 0.0:
            return False
        expected = comparison.expected_step_seconds or 0.0
        read = (expected * exp(self._quiet_ratio) - a - b * (block.tokens_per_step or 0.0)) / c
        return read < UNREAD_SHARE * block.kv_usage

    def _verdict(
        self,
        cause: str,
        summary: str,
        evidence_for: tuple[Evidence, ...],
        evidence_against: tuple[Evidence, ...],
    ) -> Verdict:
        restart = self._restart if cause == causes.KV_PINNING else cause in _RESTART
        page = self._queue_grew if cause == causes.PREEMPTION_THRASH else cause in _PAGE
        return Verdict(
            state=FIRING,
            kind=KIND,
            engine=self.engine,
            cause=cause,
            severity="page" if page else "ticket",
            restart_advised=restart,
            summary=summary,
            evidence_for=evidence_for,
            evidence_against=evidence_against,
        )


class Detector:
    """One judge per engine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._judges: dict[str, EngineJudge] = {}
        self._known = True  # False: since the last reading, time was lost
        self._seen: dict[str, tuple[EngineSample, ServerSample]] = {}  # last, by engine
        self._kept: dict[str, kept.Kept] = {}  # of an earlier run, until the engine is seen
        self._kept_at_s = 0.0

    def export_state(self, at_s: float) -> dict[str, Any]:
        """See `detectors.base.Remembers`. Until the server is heard, what was kept is kept on."""
        engines = {
            name: {
                "life": life_of(*seen).export_state(),
                "judge": self._judges[name].export_state(),
            }
            for name, seen in self._seen.items()
        }
        since_s = self._kept_at_s if self._kept else at_s
        return {"version": STATE_VERSION, "at_s": since_s, "engines": {**self._kept, **engines}}

    def restore(self, state: kept.Kept, away_seconds: float) -> None:
        """See `detectors.base.Remembers`."""
        kept.version(state, STATE_VERSION)
        at_s, engines = kept.number(state["at_s"]), kept.mapping(state["engines"])
        for engine in engines.values():
            Life.restore(engine["life"])
            EngineJudge("").restore(engine["judge"], 0.0)
        self._kept, self._kept_at_s = dict(engines), at_s

    def _new_judge(self, view: View, sample: EngineSample, life: Life) -> EngineJudge:
        """One that begins anew, unless this very process was judged not long ago."""
        judge, state = EngineJudge(sample.engine), self._kept.pop(sample.engine, None)
        if state is None:
            return judge
        away_s = max(0.0, view.at_s - self._kept_at_s)
        if away_s <= KEPT_SECONDS and Life.restore(state["life"]).goes_on_as(life, away_s):
            judge.restore(state["judge"], away_s)
        return judge

    def update(self, view: View) -> Sequence[Verdict]:
        """See `detectors.base.Detector`."""
        reading = view.observation.reading
        self._known = self._known and view.known
        if reading is None:
            return [Verdict(state=UNKNOWN, kind=KIND, engine=name) for name in self._judges]
        for gone in self._judges.keys() - {sample.engine for sample in reading.engines}:
            del self._judges[gone]
            del self._seen[gone]
        verdicts, known = [], self._known
        self._known = True
        for sample in reading.engines:
            judge = self._judges.get(sample.engine)
            if judge is None:
                life = life_of(sample, reading.server)
                judge = self._judges[sample.engine] = self._new_judge(view, sample, life)
            self._seen[sample.engine] = sample, reading.server
            if not known:
                judge.verdict = Verdict(state=UNKNOWN, kind=KIND, engine=sample.engine)
            verdicts.append(judge.update(view.at_s, known, sample, view.observation.gpus))
        if reading.engines:
            self._kept.clear()  # of engines that this server no longer has
        return verdicts

    def throughput_ratio(self, engine: str) -> float | None:
        """What the engine does now ÷ what it did when fresh at equal load; None until known."""
        judge = self._judges.get(engine)
        comparison = judge.baseline.comparison if judge else None
        return comparison.throughput_ratio if comparison else None
