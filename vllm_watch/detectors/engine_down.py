"""A server that does not answer: crashed, hung, unreachable, crashing again and again, or dead inside.

What silence means depends on how it comes. vLLM's API server exits when its engine core dies, so a
crash is a port that refuses. While it loads it refuses too, for up to 20 minutes, so a server that
was never seen to answer is starting. A server that is stopped, or whose event loop is blocked, takes
connections and says nothing; so does, for some seconds, one that thousands of requests wait for.

Source: recordings of a real vLLM 0.32 (EngineCore killed: refused within a second; API server stopped:
time-outs only). Runbook: docs/detectors/engine_down.md.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.detectors import down_memory
from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.down_memory import LIVES_KEPT, SILENCES_KEPT
from vllm_watch.detectors.gpu_trouble import GpuTrouble
from vllm_watch.samples.observation import Call, Reading
from vllm_watch.signals import kept
from vllm_watch.signals.state import START_SECONDS

KIND = "engine_down"


class Settings(BaseModel):
    """Silence is counted in looks and in seconds since the last look that had an answer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    refused_looks: int = Field(2, ge=1)
    """A refused connection is certain for its moment: nothing listens. A second one tells a crash from
    a proxy or a Service that points nowhere for an instant. With a second witness (a failed health
    check before, a GPU that has gone, a dead process) one look is enough."""

    silent_looks: int = Field(3, ge=1)
    """One look in 200 meets no answer on healthy servers; three in a row by chance are one in millions."""

    silent_seconds: float = Field(5.0, gt=0)
    """At one look a second three are over soon: a large prompt can block the event loop for seconds."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """A server with a thousand connections has been seen silent for 16 s, and it recovered."""

    unreachable_looks: int = Field(3, ge=1)
    unreachable_seconds: float = Field(15.0, gt=0)
    """A lost route comes back within seconds when a switch or a name server fails over; TCP sends its
    first packet again after 1, 2, 4 and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """/health says 503 when the engine core is dead; usually the server exits within a second of it."""

    page_after_seconds: float = Field(180.0, gt=0)
    """A server that went while (almost) nobody used it may have been restarted on purpose: loading takes
    one to three minutes for most models. Longer where this one was seen to take longer."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that nobody had asked anything for so long, and that then goes, costs nobody anything that
    can be seen: it was scaled to zero, or moved at night. It pages never. Autoscalers wait as long or
    longer after the last request (Knative 60 s, KEDA 300 s)."""

    advise_seconds: float = Field(30.0, gt=0)
    """A silent server is restarted only when it has been silent for twice as long as any silence it
    recovered from, and for no less than this."""

    loop_lives: int = Field(2, ge=1)
    loop_seconds: float = Field(300.0, gt=0)
    """After so many restarts whose lives add up to less than this, it crashes because of how it is
    started, or of what it is sent at once: nothing that one more restart cures."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A server that has crashed in a loop is well again when it has lived for so long."""


IN_FLIGHT_MIN = 2.0
"""A crash that cut off so many requests cost users something; below that the server was idle or nearly."""

BUSY_WAITING = 300.0
"""Requests that wait, and ..."""

BUSY_FDS = 500.0
"""... open connections from which on one event loop is late with everything, /metrics too."""

SLOW_ANSWER_SECONDS = 0.5
"""An idle API server answers /metrics within 30 ms; one that took this long was busy."""

SIGN_SECONDS = 60.0
"""How long before the silence a failed health check still belongs to it."""

PATIENCE_FACTOR = 1.5
"""A start may take longer than the longest seen by half: cold page cache, a slower disk."""

_SILENT = frozenset(("read_timeout", "disconnected"))  # a connection was accepted
_UNREACHED = frozenset(("connect_timeout", "dns"))
_SERVER_ERROR = 500


@dataclass(slots=True)
class _Run:
    """A row of looks without an answer."""

    began_s: float  # the first of them
    looks: int = 0
    refused: int = 0
    silent: int = 0  # of them, those in which a connection was accepted
    said: str = ""  # the newest error


@dataclass(slots=True)
class _Demand:
    """For how long nobody has asked anything of a server, our own canaries apart."""

    idle_s: float = 0.0  # at the last look that told; 0 where it is not known
    since_s: float | None = None
    finished: float | None = None
    canaries: float = 0.0  # that may still be counted

    def look(self, at_s: float, in_flight: float, finished: float | None, *, canary: bool) -> None:
        """`finished`: requests, ever; None where they are not counted."""
        before, self.finished = self.finished, finished
        if canary:
            self.canaries = 1.0
        grown = None if finished is None or before is None else finished - before
        known = grown is not None and 0.0 <= grown <= self.canaries
        if not known or in_flight > self.canaries or self.since_s is None:
            self.since_s = at_s
        self.canaries = max(0.0, self.canaries - (grown or 0.0))
        self.idle_s = at_s - self.since_s


class Detector:
    """Follows whether one server answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gpus = GpuTrouble()
        self._began_s: float | None = None
        self._answered_s: float | None = None  # the last look with an answer; None: never
        self._up_since_s: float | None = None
        self._run: _Run | None = None
        self._in_flight = 0.0
        self._demand = _Demand()
        self._busy = False
        self._dead_looks = 0
        self._dead_s: float | None = None  # the last failed health check
        self._process_start: float | None = None
        self._crashed = False  # was the present run called a crash?
        self._looping = False
        self._lives: deque[float] = deque(maxlen=LIVES_KEPT)  # seconds up before each crash
        self._load_s = 0.0  # the longest start seen, after a stop
        self._silences: deque[float] = deque(maxlen=SILENCES_KEPT)  # that ended by themselves
        self._away = False  # did it last answer before a time in which nobody looked?

    def export_state(self, at_s: float) -> dict[str, Any]:
        return down_memory.export_state(vars(self))

    def restore(self, state: kept.Kept, away_seconds: float) -> None:
        learnt, followed = down_memory.learnt(state), down_memory.followed(state)
        run, demand = down_memory.run(state), down_memory.demand(state)
        vars(self).update(learnt)
        if away_seconds <= down_memory.AWAY_SECONDS_MAX:
            vars(self).update(followed)
            self._run, self._demand = _Run(**run) if run else None, _Demand(**demand)
            self._away = run is None

    def inherit(self, state: kept.Kept) -> None:
        vars(self).update(down_memory.learnt(state))

    def update(self, view: View) -> Sequence[Verdict]:
        if self._began_s is None:
            self._began_s = view.at_s
        self._gpus.look(view.observation.gpus)
        self._hear_health(view)
        observation = view.observation
        if observation.reading is not None or _healthy(observation.health):
            return (self._answered(view, observation.reading),)
        if self._dead_looks >= self._settings.dead_looks:
            return (self._dead(view),)
        return (self._unanswered(view, observation.scrape),)

    def _hear_health(self, view: View) -> None:
        health = view.observation.health
        if health is None:
            return
        if (health.status or 0) >= _SERVER_ERROR:
            self._dead_looks += 1
            self._dead_s = view.at_s
        else:
            self._dead_looks = 0

    def _answered(self, view: View, reading: Reading | None) -> Verdict:
        if self._run is not None:
            self._end_of(self._run, view)
        self._answered_s, self._away = view.at_s, False
        if self._up_since_s is None:
            self._up_since_s = view.at_s
        if reading is not None:
            self._remember(view, reading)
        if self._dead_looks:
            return self._dead(view)
        if self._looping and view.at_s - self._up_since_s < self._settings.loop_over_seconds:
            return Verdict(state=UNKNOWN, kind=KIND, summary="up, as it was before each crash")
        self._looping = False
        return Verdict(state=CLEAR, kind=KIND)

    def _end_of(self, run: _Run, view: View) -> None:
        """It answers again: learn from how long that took."""
        lasted_s = view.at_s - run.began_s
        if run.refused:
            self._load_s = max(self._load_s, lasted_s)
            self._up_since_s = view.at_s
        elif run.silent and self._answered_s is not None:
            self._silences.append(lasted_s)
        self._run, self._crashed = None, False

    def _remember(self, view: View, reading: Reading) -> None:
        observation = view.observation
        waiting = sum(each.requests_waiting or 0.0 for each in reading.engines)
        running = sum(each.requests_running or 0.0 for each in reading.engines)
        self._in_flight = waiting + running
        canary = observation.canary is not None
        self._demand.look(view.at_s, self._in_flight, _finished(reading), canary=canary)
        self._busy = (
            waiting >= BUSY_WAITING
            or (reading.server.process_open_fds or 0.0) >= BUSY_FDS
            or observation.scrape.latency_s >= SLOW_ANSWER_SECONDS
        )
        self._process_start = reading.server.process_start_time

    def _unanswered(self, view: View, call: Call) -> Verdict:
        run = self._run
        if run is None:
            run = self._run = _Run(began_s=view.at_s)
        run.looks += 1
        run.said = call.error or call.outcome
        run.silent += call.outcome in _SILENT
        if call.outcome == "refused":
            run.refused += 1
            return self._refused(view, run)
        if run.refused and call.outcome in _SILENT:
            return self._refused(view, run)  # a port that opens and closes while it starts
        if call.outcome in _SILENT or call.outcome in _UNREACHED:
            return self._silent(view, run)
        return Verdict(state=UNKNOWN, kind=KIND, summary=f"/metrics cannot be read: {run.said}")

    def _refused(self, view: View, run: _Run) -> Verdict:
        down_s = view.at_s - run.began_s
        if self._answered_s is None:
            return self._never_up(view, run)
        process = view.observation.process
        if process is not None and process.alive and down_s < self._patience_s(START_SECONDS):
            why = "its process lives: it starts, or ends in its own time"
            return Verdict(state=UNKNOWN, kind=KIND, summary=f"refused for {down_s:.0f} s; {why}")
        signs = self._signs(view)
        if run.looks < self._settings.refused_looks and not signs:
            return Verdict(state=UNKNOWN, kind=KIND, summary="refused at one look")
        if not self._crashed:
            self._crashed = True
            self._count_life(run)
        return self._crash(view, run, signs)

    def _count_life(self, run: _Run) -> None:
        if self._up_since_s is not None:
            self._lives.append(max(0.0, run.began_s - self._up_since_s))
        last = list(self._lives)[1:][-self._settings.loop_lives :]
        # The first life began before we looked, or ran for long: only lives after a crash count.
        enough = len(last) >= self._settings.loop_lives
        self._looping = enough and sum(last) < self._settings.loop_seconds

    def _never_up(self, view: View, run: _Run) -> Verdict:
        waited_s = view.at_s - (self._began_s or 0.0)
        if waited_s < START_SECONDS:
            why = "vLLM refuses connections until its weights are loaded"
            return Verdict(state=UNKNOWN, kind=KIND, summary=f"refused for {waited_s:.0f} s; {why}")
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="unknown",
            severity="ticket",
            summary=f"never seen to answer, and it has refused for {waited_s / 60:.0f} min",
            evidence_for=(_seconds("seconds_refused", waited_s, START_SECONDS, run.said),),
        )

    def _crash(self, view: View, run: _Run, signs: tuple[Evidence, ...]) -> Verdict:
        down_s = view.at_s - run.began_s
        unused = self._in_flight < IN_FLIGHT_MIN or self._away
        unused = unused and not signs and not self._looping
        early = down_s < self._patience_s(self._settings.page_after_seconds)
        idle = self._demand.idle_s >= self._settings.idle_seconds
        summary = f"connections are refused; {self._in_flight:.0f} requests were in flight"
        if self._looping:
            lives = ", ".join(f"{life:.0f} s" for life in list(self._lives)[-3:])
            summary = f"crashed again: it lived for {lives} and then refused connections"
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="crash_loop" if self._looping else "crash",
            severity="ticket" if unused and (early or idle) else "page",
            summary=summary,
            evidence_for=(_seconds("seconds_refused", down_s, 0.0, run.said), *signs),
            evidence_against=self._why_not_a_crash() if unused else (),
        )

    def _why_not_a_crash(self) -> tuple[Evidence, ...]:
        """What says that nobody is hurt."""
        text = "(almost) no request was in flight: it may have been stopped on purpose"
        if self._away:
            text = "it went while vllm-watch did not run: both may have been stopped on purpose"
        said = [Evidence(name="requests_in_flight", value=self._in_flight, text=text)]
        idle_s = self._demand.idle_s
        if idle_s >= self._settings.idle_seconds:
            text = f"nobody had asked anything for {idle_s:.0f} s: it may be scaled to zero"
            said.append(Evidence(name="seconds_idle", value=round(idle_s), unit="s", text=text))
        return tuple(said)

    def _patience_s(self, usual_s: float) -> float:
        """How long a start may take: `usual_s`, or what this server was seen to need."""
        return min(max(usual_s, PATIENCE_FACTOR * self._load_s), max(usual_s, START_SECONDS))

    def _signs(self, view: View) -> tuple[Evidence, ...]:
        """What else says that this end was not asked for."""
        signs = []
        if self._dead_s is not None and view.at_s - self._dead_s < SIGN_SECONDS:
            text = "/health said that the engine core is dead, just before"
            signs.append(Evidence(name="health_status", value=503.0, expected=200.0, text=text))
        process = view.observation.process
        if process is not None and process.alive is False:
            text = f"process {process.pid} has ended"
            signs.append(Evidence(name="process_alive", value=0.0, expected=1.0, text=text))
        return (*signs, *self._gpus.evidence)

    def _silent(self, view: View, run: _Run) -> Verdict:
        since_s = run.began_s if self._answered_s is None else self._answered_s
        silent_s = view.at_s - since_s
        settings = self._settings
        hang = run.silent > 0
        if hang:
            looks = settings.silent_looks
            seconds = settings.silent_busy_seconds if self._busy else settings.silent_seconds
        else:
            looks, seconds = settings.unreachable_looks, settings.unreachable_seconds
        if self._answered_s is None or run.looks < looks or silent_s < seconds:
            return Verdict(
                state=UNKNOWN, kind=KIND, summary=f"no answer for {silent_s:.0f} s: {run.said}"
            )
        limit_s = max(settings.advise_seconds, 2.0 * max(self._silences, default=0.0))
        what = "connections are accepted and nothing is answered" if hang else "it is not reached"
        against = []
        if self._busy:
            text = f"it was busy when it last answered ({self._in_flight:.0f} requests)"
            against.append(Evidence(name="requests_in_flight", value=self._in_flight, text=text))
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="api_hang" if hang else "unreachable",
            severity="page",
            restart_advised=hang and silent_s >= limit_s,
            summary=f"{what} for {silent_s:.0f} s ({run.looks} looks in a row)",
            evidence_for=(_seconds("seconds_without_answer", silent_s, 0.0, run.said),),
            evidence_against=tuple(against),
        )

    def _dead(self, view: View) -> Verdict:
        if self._dead_looks < self._settings.dead_looks:
            return Verdict(state=UNKNOWN, kind=KIND, summary="/health failed once")
        text = f"/health failed {self._dead_looks} times in a row"
        evidence = Evidence(name="health_status", value=503.0, expected=200.0, text=text)
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="engine_dead",
            severity="page",
            restart_advised=not self._gpus.lost,
            summary=f"the API server answers, its engine core is dead: {text}",
            evidence_for=(evidence, *self._gpus.evidence),
        )


def _finished(reading: Reading) -> float | None:
    """Requests that ever finished, for whatever reason; None unless every engine counts them."""
    counts = [each.request_success for each in reading.engines]
    known = [sum(count.values()) for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


def _healthy(health: Call | None) -> bool:
    return health is not None and health.outcome == "ok"


def _seconds(name: str, value: float, expected: float, text: str) -> Evidence:
    return Evidence(name=name, value=round(value, 1), unit="s", expected=expected, text=text)
