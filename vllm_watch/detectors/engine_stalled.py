"""Detects an engine that has work but completes no step, or waits forever, while `/health` returns
200.

Source: vLLM #37729, #39863, #46811; recordings of a real vLLM 0.32 with its EngineCore stopped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from vllm_watch.detectors import stall_witnesses
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View, usual
from vllm_watch.detectors.gpu_fault import GpuTrouble
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.detectors.stall_witnesses import Case, Engine, Habits
from vllm_watch.samples.engine import EngineSample
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import stored
from vllm_watch.signals.life import AWAY_SECONDS_MAX, model_of
from vllm_watch.signals.scales import (
    BRIEF_SECONDS,
    CONFIRMED,
    FEW,
    HALF,
    MANY,
    MINUTE_SECONDS,
    MOMENT_SECONDS,
    ODD_TIMES,
    TWICE,
)
from vllm_watch.signals.state import is_connected, operation, waits_for_kv
from vllm_watch.story.engine_stalled import STORY
from vllm_watch.support.quantities import in_words, requests


class Settings(Base):
    """All seconds are counted from the last scrape with progress."""

    notice_seconds: float = Field(8.0, gt=0)
    """A hang is reported after this many seconds without progress. Steps take up to two seconds,
    and pauses of 5 s happen (a LoRA adapter from disk, a busy host)."""

    notice_one_request_seconds: float = Field(20.0, gt=0)
    """Replaces notice_seconds if only one request is in flight, which is weak evidence. If
    connections pile up or no GPU computes, notice_seconds still applies."""

    notice_coarse_seconds: float = Field(30.0, gt=0)
    """Replaces notice_seconds if steps are not counted (before vLLM 0.6.4), or until the first step
    after a sleep or pause. A whole prefill then shows no progress."""

    notice_young_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds while an engine warms up. Some kernels compile for half a minute."""

    notice_waiting_seconds: float = Field(60.0, gt=0)
    """If requests wait and none runs, a stall is reported after this many seconds. They may wait
    for KV pages from another host, or for a grammar to compile. Real deadlocks last until a restart
    (vLLM #45414)."""

    notice_unseen_seconds: float = Field(60.0, gt=0)
    """Replaces notice_seconds if open connections are the only sign of demand."""

    notice_seconds_max: float = Field(120.0, gt=0)
    """If the usual pauses are long, a hang is reported after at most this many seconds."""

    advise_seconds: float = Field(60.0, gt=0)
    """A restart is advised after at least this many seconds. It costs minutes of loading and every
    request in flight. vLLM itself reports a silent worker after 60 s."""

    advise_seconds_max: float = Field(1200.0, gt=0)
    """A restart is advised after at most this many seconds. One engine recovered from 157 stalls of
    up to 15.8 minutes in a day (operators' reports)."""

    kv_empty_ratio: float = Field(0.05, ge=0, le=1)
    """Up to this KV usage, any waiting request could be admitted. Requests that still wait are
    deadlocked."""

    operation_seconds: float = Field(600.0, gt=0)
    """A sleep, a wake-up or a weight update is stuck after this many seconds. Each takes seconds to
    minutes."""

    canary_failures: int = Field(2, ge=1)
    """An idle engine hangs after this many unanswered canaries (one-token requests) in a row. A
    pause may delay one canary. The first must be older than notice_seconds, or than the setting
    that replaces it."""


KIND = "engine_stalled"
PEER_WAIT, OPERATION, LIVELOCK = "peer_wait", "operation_stuck", "livelock"
_RESTART_CURES = ("hang", "admission_deadlock", "idle_wedged")

NEEDS = Needs(
    must=(
        # Finished requests are not enough, because a long answer takes minutes.
        Need(("steps", "generated"), "a hang and work look alike"),
        Need(("running",), "stalled work is not seen"),
    ),
    sharpens=(
        Need(("waiting",), "a queue from which nothing is admitted is not detected"),
        Need(("steps",), "a hang is detected after half a minute instead of seconds"),
        Need(("open_fds", "canary"), "a hang of an engine whose gauges read idle is not detected"),
        Need(("canary",), "a hang of an idle engine is not covered yet"),
        Need(("process_start",), "an engine that compiles its kernels may be called stalled"),
        Need(("gpus",), "a hang with a single request is reported later, and a lost GPU is not named"),
    ),
)  # fmt: skip


STATE_VERSION = 3


FDS_RISES_UNSEEN_MIN = 4
"""This many polls must show new connections if too few requests are overdue to prove a hang. An idle
client's pool opens all its connections at once, or in up to three steps."""


_SUMMARIES = {
    "hang": "Engine hung: no scheduler step",
    "admission_deadlock": "Scheduler admits no request",
    LIVELOCK: "Engine computes and gives no token",
}


_engine = stored.part(Engine)


class Detector:
    """Judges every engine of one target."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engines: dict[str, Engine] = {}
        self._gpus = GpuTrouble()
        self._ranks = Ranks()
        self._operations: dict[str, float] = {}
        # model → pauses of an earlier process or another server
        self._inherited: dict[str, Habits] = {}
        self.canary_wanted: dict[str, bool] = {}

    def update(self, view: View) -> Sequence[Verdict]:
        self._gpus.look(view)
        self.canary_wanted = {}
        reading = view.observation.reading
        if reading is None:
            return [Verdict(state=UNKNOWN, kind=KIND, engine=name) for name in self._engines]
        samples = [each for each in reading.engines if each.engine in view.signals.engines]
        for gone in self._engines.keys() - {each.engine for each in samples}:
            del self._engines[gone]
        moved = [self._follow(view, each) for each in samples]
        for cpu in view.observation.cpu or ():
            if cpu.core is not None and cpu.engine in self._engines:
                self._engines[cpu.engine].core = cpu.core
        # Connections are counted per server, so they are evidence only if all engines stall.
        alone = not any(moved)
        verdicts = [
            self._judge(Case(view, self._engines[each.engine], each, steps, alone))
            for each, steps in zip(samples, moved, strict=True)
        ]
        return self._ranks.told(view, verdicts)

    def _follow(self, view: View, sample: EngineSample) -> bool:
        engine, progress = self._engines.get(sample.engine), view.progress[sample.engine]
        restarts = view.signals.engines[sample.engine].restarts
        if engine is None or engine.restarts != restarts or progress.first:
            self._engines[sample.engine] = self._begun(view, sample, restarts)
            return False
        if progress.moved:
            engine.learn(progress, young=stall_witnesses.is_young(view, sample))
        if progress.served_s == view.at_s:
            engine.served(view, sample.engine)
        if progress.silent_polls:
            engine.count_connections(view, self._settings.notice_unseen_seconds)
        else:
            engine.begin(view)
        return progress.moved

    def _begun(self, view: View, sample: EngineSample, restarts: int) -> Engine:
        before, model = self._engines.get(sample.engine), model_of(sample)
        habits = Habits()
        if before is None:
            habits.add(self._inherited.get(model, habits))
        elif before.model == model:
            habits = before.habits
        engine = Engine(restarts=restarts, habits=habits, model=model)
        engine.begin(view)
        return engine

    def export_state(self, at_s: float) -> dict[str, Any]:
        engines = {name: each.export_state() for name, each in self._engines.items()}
        return {"version": STATE_VERSION, "engines": engines}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        stored.version(state, STATE_VERSION)
        engines = {
            stored.text(name): _engine(each)
            for name, each in stored.mapping(state["engines"]).items()
        }
        if away_seconds <= AWAY_SECONDS_MAX:
            self._engines = engines
        else:
            self._inherit(engines.values())

    def inherit(self, state: stored.Stored) -> None:
        stored.version(state, STATE_VERSION)
        engines = stored.mapping(state["engines"]).values()
        self._inherit([_engine(each) for each in engines])

    def _inherit(self, engines: Iterable[Engine]) -> None:
        for engine in engines:
            self._inherited.setdefault(engine.model, Habits()).add(engine.habits)

    def _judge(self, case: Case) -> Verdict:
        view, engine, sample, progress = case.view, case.engine, case.sample, case.progress
        stuck_s = self._operation_seconds(case)
        if stuck_s >= self._settings.operation_seconds:
            return self._firing(case, OPERATION, stuck_s)
        if view.signals.engines[sample.engine].state == "sleeping":
            return Verdict(state=CLEAR, kind=KIND, engine=sample.engine)
        counters = () if progress.poll is None else progress.poll.counters
        if counters.count(None) == len(counters):
            return Verdict(
                state=UNKNOWN, kind=KIND, engine=sample.engine,
                summary="this vLLM exports no counter of its work",
            )  # fmt: skip
        stall_witnesses.hear_canary(case, alone=len(self._engines) == 1)
        believed = engine.canary_failures > 0 or (
            (progress.met or not sample.requests_running) and not _waits_by_itself(sample)
        ) or (case.alone and self._unseen(case) is not None)  # fmt: skip
        self._want_canary(case, believed=believed)
        finding = self._at_work(case, believed=believed) or self._canary(case)
        if finding is None and not progress.work and case.alone:
            finding, served_s = self._unseen(case), view.at_s - progress.served_s
            waited_for = view.around.waited_for and not case.steps
            if finding is None and waited_for and served_s >= self._settings.notice_unseen_seconds:
                finding = ("idle_wedged", served_s)
            # Clients that give up one by one suggest a hang. A failed canary must confirm it.
            if finding is None and engine.unserved >= max(FEW, 2.0 * engine.unserved_idle):
                finding, believed = ("hang", view.at_s - progress.life_s), False
        if finding is not None:
            if engine.told_s is None:
                engine.told_s = view.at_s
            return self._firing(case, *finding, believed=believed)
        in_doubt = progress.silent_polls and (progress.work or engine.unseen_s is not None)
        state = UNKNOWN if in_doubt or engine.canary_failures else CLEAR
        return Verdict(state=state, kind=KIND, engine=sample.engine)

    def _at_work(self, case: Case, *, believed: bool) -> tuple[str, float] | None:
        view, sample, progress = case.view, case.sample, case.progress
        if not progress.work:
            return None
        # In doubt, wait until the clients of a hung engine have given up (OpenAI's after 600 s).
        queued_s = view.at_s - progress.queued_s
        if queued_s >= (self._settings.notice_waiting_seconds if believed else AWAY_SECONDS_MAX):
            if waits_for_kv(sample, paired=bool(view.around.peers)):
                return PEER_WAIT, queued_s
            usage = sample.kv_cache_usage
            empty = usage is None or usage <= self._settings.kv_empty_ratio
            return ("admission_deadlock" if empty else "hang"), queued_s
        still_s = view.at_s - progress.life_s
        notice_s = self._notice_seconds(case) if believed else AWAY_SECONDS_MAX
        if sample.requests_running and not case.steps and still_s >= notice_s:
            return "hang", still_s
        return (LIVELOCK, view.at_s - progress.output_s) if progress.overdue else None

    def _operation_seconds(self, case: Case) -> float:
        if _under_way(case) is None:
            self._operations.pop(case.sample.engine, None)
            return 0.0
        at_s = case.view.at_s
        return at_s - self._operations.setdefault(case.sample.engine, at_s)

    def _notice_seconds(self, case: Case) -> float:
        settings, view, engine, progress = self._settings, case.view, case.engine, case.progress
        if stall_witnesses.is_young(view, case.sample):
            return settings.notice_young_seconds
        if case.sample.iteration_tokens is None or progress.waking:
            return settings.notice_coarse_seconds
        usual_s = min(ODD_TIMES * usual(engine.habits.usual), settings.notice_seconds_max)
        notice_s = max(settings.notice_seconds, usual_s)
        grown = engine.fds_grown >= FEW
        second = case.alone and (grown or stall_witnesses.gpus_idle(view))
        if progress.work <= 1 and not second:
            return max(notice_s, settings.notice_one_request_seconds)
        return notice_s

    def _unseen(self, case: Case) -> tuple[str, float] | None:
        engine, at_s = case.engine, case.view.at_s
        if engine.unseen_s is None or engine.fds_rises < CONFIRMED:
            return None
        # Idle proxies open a few spare connections.
        if engine.fds_grown < max(MANY, 2.0 * engine.fds_idle):
            return None
        unseen_s, still_s = at_s - engine.unseen_s, at_s - case.progress.life_s
        missed = engine.finish_rate * still_s
        # Requests still arrive if there are this many new connections for each overdue
        # request.
        if missed >= MANY and engine.fds_grown >= HALF * missed:
            return "hang", still_s
        if engine.fds_rises < FDS_RISES_UNSEEN_MIN:
            return None
        return ("hang", unseen_s) if unseen_s >= self._settings.notice_unseen_seconds else None

    def _want_canary(self, case: Case, *, believed: bool) -> None:
        engine, progress = case.engine, case.progress
        doubt = progress.gone or progress.doubtful or not believed
        if (progress.work and not doubt) or progress.served_s == case.view.at_s:
            return
        failures = engine.canary_failures
        doubt = doubt or engine.unseen_s is not None or engine.unserved > 0.0
        suspected = failures == 0 and case.alone and doubt
        wanted = suspected or 0 < failures < self._settings.canary_failures
        self.canary_wanted[case.sample.engine] = wanted

    def _canary(self, case: Case) -> tuple[str, float] | None:
        if case.engine.canary_failures < self._settings.canary_failures:
            return None
        still_s = case.view.at_s - case.engine.canary_s
        return ("idle_wedged", still_s) if still_s >= self._notice_seconds(case) else None

    def _firing(self, case: Case, cause: str, still_s: float, *, believed: bool = True) -> Verdict:
        settings, engine, progress = self._settings, case.engine, case.progress
        name, around = case.sample.engine, case.view.around
        survived_s = max(engine.habits.survived, default=0.0)
        limit_s = min(TWICE * survived_s, settings.advise_seconds_max)
        limit_s = max(settings.advise_seconds, limit_s)
        # Unless a canary failed, the clients may be gone, or the peers out of reach.
        left = progress.doubtful and self._unseen(case) is None
        unsure = cause == "idle_wedged" or left or not believed
        harms = (cause != OPERATION or progress.work) and (believed or engine.fds is None)
        harms = harms and (cause != "hang" or still_s >= MOMENT_SECONDS)
        helps = cause in _RESTART_CURES and (engine.canary_failures > 0 or not unsure)
        helps = helps and not self._gpus.needs_hands
        core = engine.core or (around.core if len(case.view.signals.engines) == 1 else None)
        text = f"its engine core is {core}"
        seen_as = (Evidence(name="engine_core", value=core, text=text),) if core else ()
        return Verdict(
            state=FIRING,
            kind=KIND,
            engine=name,
            cause=cause,
            severity="page" if harms else "ticket",
            restart_advised=still_s >= limit_s and helps,
            summary=_summary(case, cause, still_s),
            since_seconds=still_s,
            measure=still_s,
            evidence_for=(
                *stall_witnesses.evidence_for(case, cause, still_s, survived_s),
                *seen_as,
                *self._gpus.evidence,
            ),
            evidence_against=stall_witnesses.evidence_against(
                case, still_s, limit_s if helps else None, survived_s
            ),
        )


def _waits_by_itself(sample: EngineSample) -> bool:
    """Return True if so few requests wait, all deferred, that their grammars may compile.

    Source: vLLM #54003 (minutes to hours for one schema). A scheduler that is locked up defers all requests.
    """
    waiting, reasons = sample.requests_waiting or 0.0, sample.requests_waiting_by_reason or {}
    few = not sample.requests_running and 0.0 < waiting < FEW
    return few and reasons.get("deferred", 0.0) >= waiting and not is_connected(sample)


def _under_way(case: Case) -> str | None:
    reading = case.view.observation.reading
    return None if reading is None else operation(case.sample, reading.server)


def _summary(case: Case, cause: str, still_s: float) -> str:
    view, engine, sample, progress = case.view, case.engine, case.sample, case.progress
    seen, long = STORY.causes[cause].seen, in_words(still_s)
    if cause == OPERATION:
        return f"{seen}: {_under_way(case)}, for {long}"
    if cause == "idle_wedged" and not engine.canary_failures:
        who = f"{', '.join(view.around.waited_for)} wait{'s' * (len(view.around.waited_for) == 1)}"
        return f"{seen}: nothing done for {long}, while {who} for KV from it"
    if cause == "idle_wedged":
        asked = f"{engine.canary_failures} one-token requests in a row"
        return f"Engine wedged while it seems idle: {asked} unanswered, the first sent {long} ago"
    running, waiting = sample.requests_running or 0.0, sample.requests_waiting or 0.0
    if cause == PEER_WAIT:
        return f"{requests(waiting)} wait{'s' * (round(waiting) == 1)} for KV from another server; none has run for {long}"
    what = _SUMMARIES.get(cause, seen[0].upper() + seen[1:])
    if cause == "hang" and not progress.work:
        asked = f"{engine.unserved:.0f} clients in turn waited over a minute and got no token"
        if engine.unseen_s is not None:
            asked = f"{engine.fds_grown:.0f} more connections are open than when the steps stopped"
        return f"{what} for {long}; {asked}"
    load = f"{requests(running)} running" + (f", {waiting:.0f} waiting" if waiting else "")
    doubt = "" if progress.met else "; it was never seen to make progress"
    return f"{what} for {long} with {load}{doubt}"


STOPPED, RANK_WAIT = "stopped", "rank_wait"


_VICTIMS = ("hang", "admission_deadlock")


class Ranks:
    """Finds the rank that stalls the others.

    Every step is a collective operation, so most stalled ranks only wait for one rank with a stopped
    process (state T).
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def told(self, view: View, verdicts: Sequence[Verdict]) -> list[Verdict]:
        stopped = self._stopped(view)
        culprits = (*(f"engine {name}" for name in stopped), *view.around.held_up_by)
        found = []
        for verdict in verdicts:
            told = verdict
            if verdict.engine in stopped:
                told = self._on_stopped(view, verdict, stopped[verdict.engine or ""], verdicts)
            elif verdict.state == FIRING and verdict.cause in _VICTIMS and culprits:
                told = _waiting(verdict, culprits)
            found.append(_restart_all_or_none(told, view))
        return found

    def _stopped(self, view: View) -> dict[str, str]:
        if view.observation.cpu is None:
            return {}
        seen = {each.engine: each.stopped for each in view.observation.cpu if each.stopped}
        awake = {name for name, each in view.signals.engines.items() if each.state != "sleeping"}
        self._since_s = {name: self._since_s.get(name, view.at_s) for name in seen if name in awake}
        # A debugger needs a second or two to read a stack.
        patience_s = BRIEF_SECONDS if view.around.ranks else MOMENT_SECONDS
        return {
            name: seen[name] or ""
            for name, since_s in self._since_s.items()
            if view.at_s - since_s >= patience_s
        }

    def _on_stopped(
        self, view: View, verdict: Verdict, process: str, verdicts: Sequence[Verdict]
    ) -> Verdict:
        lasted_s = view.at_s - self._since_s[verdict.engine or ""]
        text = f"{process} is stopped (state T) for {in_words(lasted_s)}"
        halted = Evidence(name="process_state", value="T", expected="S", text=text)
        waited = any(each.state == FIRING for each in verdicts)
        # Gauges keep their last values, so an engine stopped between requests seems idle.
        signals = view.signals.engines[verdict.engine or ""]
        served_t = signals.last_progress_timestamp_seconds
        used = served_t is not None and view.observation.t - served_t <= lasted_s + MINUTE_SECONDS
        return replace(
            verdict, state=FIRING, cause=STOPPED, severity="page" if waited or used else "ticket",
            present=True, summary=f"Engine {verdict.engine}: {text}", since_seconds=lasted_s, measure=lasted_s,
            evidence_for=(halted, *verdict.evidence_for),
        )  # fmt: skip


def _waiting(verdict: Verdict, culprits: Sequence[str]) -> Verdict:
    text = f"{', '.join(culprits)} of its group is stalled, and ranks step together"
    held = Evidence(name="held_up_by", value=", ".join(culprits), text=text)
    return replace(
        verdict, cause=RANK_WAIT, restart_advised=False, summary=f"{verdict.summary}; {text}",
        evidence_for=(*verdict.evidence_for, held),
    )  # fmt: skip


def _restart_all_or_none(verdict: Verdict, view: View) -> Verdict:
    """The other ranks would wait forever for one restarted rank."""
    ranks = view.around.ranks
    if verdict.state != FIRING or not verdict.restart_advised or not ranks:
        return verdict
    text = f"it steps together with {', '.join(ranks)}: restart all of them, or none"
    against = Evidence(name="ranks", value=float(len(ranks)), text=text)
    return replace(
        verdict, restart_targets=(view.signals.target, *ranks),
        evidence_against=(*verdict.evidence_against, against),
    )  # fmt: skip
