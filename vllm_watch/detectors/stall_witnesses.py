"""Finds evidence of a stall."""

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from vllm_watch.detectors.base import Evidence, View
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.record import short_record
from vllm_watch.signals import state, stored
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.scales import FEW, HALF_MINUTE_SECONDS, PAST_KEPT, SMALL_SHARE
from vllm_watch.story.base import ADVISED_AFTER
from vllm_watch.support.quantities import in_words, requests

CANARY_SECONDS_MIN = 2.0
"""A canary (one-token request) that fails sooner than this was refused (wrong key or model
name)."""


def _last() -> deque[float]:
    return deque(maxlen=PAST_KEPT)


@dataclass(slots=True)
class Habits(stored.Kept):
    """Durations of survived pauses."""

    KEPT: ClassVar[stored.Fields] = dict.fromkeys(("usual", "survived"), stored.last(PAST_KEPT))

    usual: deque[float] = field(default_factory=_last)  # without long stalls that were reported
    survived: deque[float] = field(default_factory=_last)

    def add(self, other: "Habits") -> None:
        self.usual.extend(other.usual)
        self.survived.extend(other.survived)


@dataclass(slots=True)
class Engine(stored.Kept):
    """An engine's state besides its progress."""

    LATER = (
        "told_s", "fds", "fds_now", "fds_rises", "fds_idle", "unseen_s", "asked_s", "unserved", "unserved_idle",
        "finish_rate", "canary_failures", "canary_s", "canary_waited_s", "model",
    )  # fmt: skip
    KEPT: ClassVar[stored.Fields] = {
        "restarts": stored.number_or_none,
        "habits": stored.part(Habits),
        **dict.fromkeys(LATER, stored.number_or_none),
        "model": stored.text,
    }

    restarts: int = 0
    habits: Habits = field(default_factory=Habits)
    told_s: float | None = None
    fds: float | None = None  # open connections when the steps stopped
    fds_now: float | None = None
    fds_rises: int = 0
    fds_idle: float = 0.0
    unseen_s: float | None = None
    asked_s: float | None = None  # time of the first additional connection
    unserved: float = 0.0
    unserved_idle: float = 0.0
    finish_rate: float = 0.0
    canary_failures: int = 0
    canary_s: float = 0.0
    canary_waited_s: float = 0.0
    model: str = ""
    core: str | None = None  # process title and PID of its engine core

    @property
    def fds_grown(self) -> float:
        return 0.0 if self.fds is None or self.fds_now is None else self.fds_now - self.fds

    def begin(self, view: View) -> None:
        """Begin again without signs of a stall."""
        self.told_s, self.fds_rises, self.unseen_s = None, 0, None
        self.asked_s, self.unserved = None, 0.0
        self.fds = self.fds_now = view.signals.process_open_fds

    def served(self, view: View, name: str) -> None:
        """Forget failed canaries, and note the finish rate."""
        self.canary_failures = 0
        signals = view.signals.engines.get(name)
        self.finish_rate = (signals and signals.requests_finished_per_second) or 0.0

    def learn(self, progress: Progress, *, young: bool) -> None:
        """Learn from a pause that has ended."""
        if progress.pause_s >= state.STILL_SECONDS and not young:
            self.habits.survived.append(progress.pause_s)
            # An engine that hangs for longer is unhealthy each time.
            if self.told_s is None or progress.pause_s <= HALF_MINUTE_SECONDS:
                self.habits.usual.append(progress.pause_s)
        elif not progress.pause_s:
            self.fds_idle = max(self.fds_idle, self.fds_grown)
            self.unserved_idle = max(self.unserved_idle, self.unserved)

    def count_connections(self, view: View, long_s: float) -> None:
        """Count connections. vLLM closes idle ones after 5 s, so a connection that is open for `long_s` waits for an answer."""
        now = view.signals.process_open_fds
        if now is None:
            return
        if self.fds_now is not None and now > self.fds_now:
            self.fds_rises += 1
        self.fds_now = now
        if self.fds is None or now < self.fds:
            self.fds = now
        if self.fds_grown < 1.0:
            lasted_s = 0.0 if self.asked_s is None else view.at_s - self.asked_s
            self.asked_s, self.unserved = None, self.unserved + (lasted_s >= long_s)
        elif self.asked_s is None:
            self.asked_s = view.at_s
        if self.fds_grown < FEW:
            self.unseen_s = None
        elif self.unseen_s is None:
            self.unseen_s = view.at_s


@short_record
class Case:
    """One engine at one poll."""

    view: View
    engine: Engine
    sample: EngineSample
    steps: bool  # something changed since the previous poll
    alone: bool  # all engines of the server stand still

    @property
    def progress(self) -> Progress:
        return self.view.progress[self.sample.engine]


def hear_canary(case: Case, *, alone: bool) -> None:
    """Count an unanswered canary, unless it may have waited in a queue. `alone` is True if the server has no other engine."""
    view, engine, progress = case.view, case.engine, case.progress
    canary = view.observation.canary
    if canary is None or not (alone or canary.engine == case.sample.engine):
        return
    outcome = canary.outcome
    if outcome is None:
        unanswered = canary.latency_s >= CANARY_SECONDS_MIN
        outcome = "ok" if canary.ok else "unanswered" if unanswered else "refused"
    if outcome == "ok":
        engine.canary_failures = 0
    sent_s = view.at_s - canary.latency_s
    queued = progress.work > 1 and progress.met and not progress.doubtful
    if outcome != "unanswered" or sent_s <= progress.served_s or queued:
        return
    engine.canary_failures += 1
    engine.canary_waited_s = canary.latency_s
    if engine.canary_failures == 1:
        engine.canary_s = sent_s


def is_young(view: View, sample: EngineSample) -> bool:
    """Return True if kernels may still compile."""
    started = view.signals.process_start_time
    return state.is_warming_up(sample, None if started is None else view.observation.t - started)


def gpus_idle(view: View) -> bool:
    """Return True if no GPU of this host computes, and False if unknown."""
    shares = [gpu.utilization_ratio for gpu in view.gpus or ()]
    known = [share for share in shares if share is not None]
    return bool(known) and max(known) < SMALL_SHARE


def witnesses(case: Case) -> list[tuple[bool, Evidence]]:
    """Return each piece of evidence, paired with True if it supports a hang."""
    view, engine, progress, found = case.view, case.engine, case.progress, []
    if engine.fds_grown >= FEW:
        text = f"{engine.fds_grown:.0f} more connections than when the steps stopped: more requests, which vLLM does not count as waiting"
        found.append((True, Evidence(name="open_fds_grown", value=engine.fds_grown, expected=0.0, text=text)))  # fmt: skip
    if engine.unserved:
        text = f"{engine.unserved:.0f} times a client connected, waited for a minute or longer, and left without a token"
        found.append((True, Evidence(name="clients_unserved", value=engine.unserved, expected=0.0, text=text)))  # fmt: skip
    if progress.doubtful:
        text = "many of its clients left with the last step; no one-token request has been answered yet"
        found.append((False, Evidence(name="clients_left", value="with the last step", text=text)))
    if not progress.met:
        text = "it was never seen to make progress: its gauges may count clients that left"
        found.append((False, Evidence(name="ever_moved", value="no", expected="yes", text=text)))
    if engine.canary_failures:
        text = (
            f"{engine.canary_failures} one-token requests in a row were not answered, "
            f"the last within {engine.canary_waited_s:.0f} s"
        )
        found.append((True, Evidence(name="canary_failures", value=engine.canary_failures, expected=0.0, text=text)))  # fmt: skip
    if gpus_idle(view):
        text = "no GPU of this host computes"
        found.append((True, Evidence(name="gpu_utilization", value=0.0, unit="ratio", text=text)))
    others = ", ".join(
        name for name, each in view.progress.items() if name != case.sample.engine and each.served
    )
    if others:
        text = f"other engines of this server keep working: {others}"
        found.append((True, Evidence(name="engines_that_go_on", value=others, text=text)))
    reading = view.observation.reading
    if reading is not None and reading.server.paused is False:
        found.append(
            (True, Evidence(name="paused", value="no", text="/is_paused: the API did not pause it"))
        )
    return found


def evidence_for(case: Case, cause: str, still_s: float, survived_s: float) -> tuple[Evidence, ...]:
    """Return the evidence of a stall."""
    longest = f"longest pause so far: {in_words(survived_s)}"
    since = " since the first unanswered canary" if case.engine.canary_failures else ""
    running, waiting = case.sample.requests_running, case.sample.requests_waiting
    text = f"no scheduler step for {in_words(still_s)}{since} ({longest if survived_s else 'it was never seen to stop before'})"
    if cause == "livelock":
        text = f"no token and no finished request for {in_words(still_s)}; {case.progress.overdue}"
    awaited = f"waiting for KV from another server: {requests(waiting or 0.0)}"
    still = Evidence(name="seconds_without_progress", value=round(still_s, 1), unit="s", text=text)
    text = f"{running or 0.0:.0f} running and {waiting or 0.0:.0f} waiting"
    return (
        still,
        Evidence(name="requests_in_engine", value=case.progress.work, expected=0.0, text=text),
        *(said for agrees, said in witnesses(case) if agrees),
        *((Evidence(name="waits_for_kv", value=waiting, text=awaited),) if cause == "peer_wait" else ()),
    )  # fmt: skip


def evidence_against(
    case: Case, still_s: float, limit_s: float | None, survived_s: float
) -> tuple[Evidence, ...]:
    """Return evidence against a stall. `limit_s` is the time before a restart is advised."""
    found = [said for agrees, said in witnesses(case) if not agrees]
    if case.progress.work == 1:
        text = "only one request is in the engine"
        found.append(Evidence(name="requests_in_engine", value=1.0, text=text))
    if limit_s is not None and still_s < limit_s:
        text = f"an engine that stops stepping for a moment usually continues within {in_words(limit_s)}"
        if survived_s:
            text = f"it recovered from a {in_words(survived_s)} pause before; a restart is advised after {in_words(limit_s)}"
        found.append(Evidence(name=ADVISED_AFTER, value=round(limit_s, 1), unit="s", text=text))
    return tuple(found)
