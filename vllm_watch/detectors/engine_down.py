"""Detects a server that does not answer: crashed, hung, unreachable, in a crash loop, or without
its engine core.

vLLM's API server exits when its engine core dies, so a crashed server refuses connections. A
starting server also refuses them, for up to 20 minutes. A stopped or blocked server accepts
connections without a response, and a very busy server does so for some seconds. Source: recordings
of a real vLLM 0.32.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from vllm_watch.detectors import down_signs
from vllm_watch.detectors.base import CLEAR, Evidence, Verdict, View
from vllm_watch.detectors.demand import Demand
from vllm_watch.detectors.down_signs import KIND, Earlier, Health, Run, Share, firing, unknown
from vllm_watch.detectors.gpu_fault import GpuTrouble
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.samples.observation import Call, Reading
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import stored
from vllm_watch.signals.life import AWAY_SECONDS_MAX
from vllm_watch.signals.loading import START_SECONDS, Loading
from vllm_watch.signals.scales import (
    CONFIRMED,
    HALF_MINUTE_SECONDS,
    MINUTE_SECONDS,
    PAST_KEPT,
    TEN_MINUTES_SECONDS,
)
from vllm_watch.support.quantities import in_words


class Settings(Base):
    """The limits of a server's silence, in scrapes and seconds. Silence is a time without an answer."""

    refused_looks: int = Field(2, ge=1)
    """A server is down after this many refused scrapes in a row. A proxy or Service without a
    backend may refuse one. With other evidence (a failed health check, a lost GPU, a dead process),
    one refusal suffices."""

    silent_looks: int = Field(3, ge=1)
    """A server is silent after this many scrapes in a row without a response. Healthy servers miss
    one scrape in 200."""

    silent_seconds: float = Field(5.0, gt=0)
    """Silence must also last this long. A large prompt may block the event loop for longer than
    three scrapes take."""

    silent_busy_seconds: float = Field(60.0, gt=0)
    """Replaces silent_seconds for busy servers. A server with a thousand connections recovered
    after 16 s."""

    silent_page_seconds: float = Field(30.0, gt=0)
    """A silent server is reported as critical after this many seconds, and after at least twice the
    longest silence that it survived."""

    silent_page_seconds_max: float = Field(120.0, gt=0)
    """A hanging server pages after at most this many seconds of silence. Clients give up sooner."""

    unreachable_looks: int = Field(3, ge=1)
    """A server is unreachable after this many failed attempts to connect in a row."""

    unreachable_seconds: float = Field(15.0, gt=0)
    """Attempts to connect must also fail for this long. TCP resends its first packet after 1, 2, 4
    and 8 s."""

    dead_looks: int = Field(2, ge=1)
    """An engine core is dead after this many failed health checks (503) in a row, unless new tokens
    arrive."""

    page_after_seconds: float = Field(180.0, gt=0)
    """If an (almost) unused server ends, it pages after this many seconds. It may have been
    restarted on purpose, and most models load in one to three minutes. A server that loads longer
    gets more time."""

    idle_seconds: float = Field(60.0, gt=0)
    """A server that ends after this many seconds without requests does not page. An autoscaler may
    have removed it (Knative after 60 s, KEDA after 300 s). If the server stayed up through several
    longer idle times, its end may page."""

    away_factor: float = Field(2.0, ge=1)
    """A server that ends when unused and starts on demand may be away for this multiple of its
    longest absence."""

    advise_seconds: float = Field(30.0, gt=0)
    """A restart is advised after this many seconds of silence, but not before twice the longest
    silence that the server survived."""

    exit_seconds: float = Field(3.0, gt=0)
    """A process that still runs this many seconds after its port closed was asked to stop. After a
    crash of the engine core, the API server exits within a second."""

    loop_starts: int = Field(3, ge=2)
    """A server is in a crash loop after this many processes in a row that never answered."""

    loop_lives: int = Field(2, ge=1)
    """A server is in a crash loop after this many processes in a row that answered but crashed soon
    (`loop_seconds`)."""

    loop_seconds: float = Field(300.0, gt=0)
    """The last `loop_lives` processes of a crash loop lived for less than this in total."""

    loop_over_seconds: float = Field(120.0, gt=0)
    """A crash loop ends when a process has been up for this many seconds."""


NEEDS = Needs(
    sharpens=(
        Need(("health",), "an engine core that dies is found only when its API server ends too"),
        Need(("running", "waiting"), "a crash under load resembles the end of an idle server, so it pages late"),
        Need(("finished",), "a server that was drained before it was stopped seems crashed"),
        Need(("prompted",), "a server that was emptied before it was stopped may look crashed"),
    ),
)  # fmt: skip

STATE_VERSION = 1

ABSENCE_SECONDS_MAX = 7 * 86_400.0
"""Absences are learnt up to this length. A server may be away for a weekend."""

OF_ADDRESS = ("earlier",)
"""State that is valid only for this address."""


well = partial(firing, severity="page", present=False)  # at this poll, after it was found down


def never_up(waited_s: float, said: str) -> Verdict:
    """Judge a server that has refused connections since the first poll."""
    if waited_s < START_SECONDS:
        why = "vLLM refuses connections until its weights are loaded"
        return unknown(f"refused for {in_words(waited_s)}; {why}")
    return firing(
        cause="unknown",
        severity="ticket",
        summary=f"never seen to answer, and it has refused for {waited_s / 60:.0f} min",
        evidence_for=(down_signs.seconds("seconds_refused", waited_s, START_SECONDS, said),),
    )


def health_failed(text: str) -> Evidence:
    """Return evidence of a dead engine core."""
    return Evidence(name="health_status", value=503.0, expected=200.0, text=text)


def slow_load(loading: Loading, at_s: float, began_s: float) -> tuple[Evidence, ...]:
    """Return evidence of a slow start."""
    longest_s, loads_s = loading.longest_s, loading.for_s(at_s)
    taken_s = at_s - began_s if loads_s is None else loads_s
    if longest_s is None or taken_s < loading.patience_s(0.0):
        return ()
    text = f"loading for {in_words(taken_s)}; its longest start so far took {in_words(longest_s)}"
    if loads_s is None:
        text = f"down for {in_words(taken_s)} and no new process seen yet; its longest start so far took {in_words(longest_s)}"
    return (down_signs.seconds("seconds_to_load", taken_s, longest_s, text),)


class Detector(stored.Kept):
    """Judges whether one server answers."""

    KEPT: ClassVar[stored.Fields] = {
        **dict.fromkeys(("began_s", "answered_s", "up_since_s"), stored.number_or_none),
        **dict.fromkeys(("busy", "crashed", "looping"), stored.flag),
        "lives": stored.last(PAST_KEPT),
        "demand": stored.part(Demand),
        "loading": stored.part(Loading),
        "share": stored.part(Share),
        "run": lambda state: None if state is None else stored.part(lambda: Run(0.0))(state),
        "earlier": stored.part(Earlier),
        "away_s": stored.amount,
        "silences": stored.last(PAST_KEPT),
    }
    LATER = ("share", "earlier")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._gpus = GpuTrouble()
        self._began_s: float | None = None
        self._answered_s: float | None = None
        self._engines_s = float("-inf")
        self._earlier = Earlier()
        self._up_since_s: float | None = None
        self._run: Run | None = None
        self._demand = Demand()
        self._loading = Loading()
        self._busy = False
        self._health = Health()
        self._share = Share()
        self._crashed = False
        self._looping = False
        self._lives: deque[float] = deque(maxlen=PAST_KEPT)  # seconds from start to crash
        self._away_s = 0.0  # longest absence that began without demand and ended by itself
        self._silences: deque[float] = deque(maxlen=PAST_KEPT)

    def export_state(self, at_s: float = 0.0) -> dict[str, Any]:
        state = super().export_state()
        return {"version": STATE_VERSION, **state, "dead_s": self._health.failed_s}

    def restore(self, state: stored.Stored, away_seconds: float = 0.0) -> None:
        values, health = self.read(state), Health(stored.number_or_none(state["dead_s"]))
        self.inherit(state)  # checks the version
        self._earlier = values.get("_earlier", self._earlier)
        if away_seconds > AWAY_SECONDS_MAX:
            return
        vars(self).update(values, _health=health)
        if self._run is None:
            self._demand.known = False  # the server may have ended meanwhile

    def inherit(self, state: stored.Stored) -> None:
        """Adopt values that remain valid after a long absence, and for other servers of the group."""
        stored.version(state, STATE_VERSION)
        silences = self.KEPT["silences"](state["silences"])
        away_s = stored.amount(state["away_s"])
        starts_s = self.KEPT["loading"](state["loading"]).starts_s
        self._silences, self._away_s, self._loading = silences, away_s, Loading()
        self._loading.starts_s.extend(starts_s)

    def update(self, view: View) -> Sequence[Verdict]:
        if self._began_s is None:
            self._began_s = view.at_s
        self._gpus.look(view)
        self._health.look(view)
        self._loading.look(view.at_s, view.observation)
        self._share.look(view, self._demand.waiting)
        return (self._share.judge(self._judge(view), view.at_s),)

    def _judge(self, view: View) -> Verdict:
        observation = view.observation
        health = observation.health
        if observation.reading is not None or (health is not None and health.outcome == "ok"):
            return self._answered(view, observation.reading)
        if observation.scrape.outcome == "watcher":
            return unknown(f"{observation.scrape.error}")
        if self._run is None:
            self._demand.missed(view)
        looks = self._settings.dead_looks
        if self._health.failed_looks >= looks and not down_signs.turned_away(observation):
            return self._unhealthy(view)
        return self._unanswered(view, observation.scrape)

    def _answered(self, view: View, reading: Reading | None) -> Verdict:
        run = self._run
        if reading is not None and reading.engines:
            self._engines_s = view.at_s
        elif view.at_s - self._engines_s < HALF_MINUTE_SECONDS:
            reading = None
        self._earlier.answers(view.at_s, reading, refused=run is not None and run.refused > 0)
        if run is not None:
            self._end_of(run, view)
        self._answered_s = view.at_s
        if self._up_since_s is None:
            self._up_since_s = view.at_s
        if reading is not None:
            self._demand.look(view, reading)
            scrape = view.observation.scrape
            self._busy = down_signs.busy(self._demand.waiting, reading, scrape)
        if self._health.failed_looks:
            return self._unhealthy(view)
        up_s = view.at_s - self._up_since_s
        if self._looping and up_s < self._settings.loop_over_seconds:
            summary = f"up for {in_words(up_s)}, as it was before each crash"
            return well(cause="crash_loop", summary=summary)
        self._looping = False
        return Verdict(state=CLEAR, kind=KIND)

    def _end_of(self, run: Run, view: View) -> None:
        lasted_s = view.at_s - run.began_s
        if run.refused:
            self._up_since_s = view.at_s
            if run.unused and lasted_s > self._loading.patience_s(
                self._settings.page_after_seconds
            ):
                self._away_s = min(max(self._away_s, lasted_s), ABSENCE_SECONDS_MAX)
        elif run.silent and self._answered_s is not None:
            self._silences.append(lasted_s)
        self._run, self._crashed = None, False

    def _unanswered(self, view: View, call: Call) -> Verdict:
        run = self._run
        if run is None:
            run = self._run = Run(began_s=view.at_s)
        began_s, mute = run.began_s, run.hear(call, view.at_s)
        if self._demand.drained is None and not self._is_idle():
            self._demand.unseen(run.began_s - began_s)
        if run.refused and mute:
            # After one refusal, every poll without a response counts as refused. The port of a
            # starting server opens and closes.
            return self._refused(view, run)
        if mute:
            return self._silent(view, run)
        if down_signs.turned_away(view.observation):
            self._earlier.refuses = False  # a proxy answers while no server is up
            if self._answered_s is not None:
                return self._absent(view, run)
        return unknown(f"/metrics cannot be read: {run.said}")

    def _refused(self, view: View, run: Run) -> Verdict:
        down_s = view.at_s - run.began_s
        if self._answered_s is None:
            return never_up(view.at_s - (self._began_s or 0.0), run.said)
        loading, process = self._loading, view.observation.process
        lives = loading.is_ending(process)
        run.told_to_end = run.told_to_end or (lives and down_s >= self._settings.exit_seconds)
        unborn = process is not None and process.alive is True and process.start_time is None
        if (lives or unborn) and down_s < loading.patience_s(START_SECONDS):
            return unknown(
                f"refused for {in_words(down_s)}; its process is alive: it is starting or stopping"
            )
        gone = process is not None and process.alive is False
        signs, dead_s = self._gpus.evidence, self._health.failed_s
        if dead_s is not None and view.at_s - dead_s < MINUTE_SECONDS:
            text = "/health reported a dead engine core, just before"
            signs = (health_failed(text), *signs)
        if run.looks < self._settings.refused_looks and not (signs or gone):
            return unknown("refused by one scrape")
        if loading.attempts >= self._settings.loop_starts:
            self._looping = True
        planned = self._demand.planned(told_to_end=run.told_to_end)
        if planned and not signs and not self._looping:
            return self._ended(view, run, planned)
        seen = self._demand.known or not run.reached_again
        if down_s < self._patience_s(run) and not (seen or signs or gone or self._looping):
            return unknown(
                f"its host answers again, and its port has refused for {in_words(down_s)}; it may be starting"
            )
        if not self._crashed:
            self._crashed = True
            self._count_life(run)
        return self._crash(view, run, signs)

    def _patience_s(self, run: Run) -> float:
        unseen_s = 0.0 if self._answered_s is None else run.began_s - self._answered_s
        if unseen_s > AWAY_SECONDS_MAX:
            return START_SECONDS
        return self._loading.patience_s(self._settings.page_after_seconds)

    def _ended(self, view: View, run: Run, planned: tuple[Evidence, ...]) -> Verdict:
        run.unused = True
        down_s = view.at_s - run.began_s
        patience_s = self._loading.patience_s(self._settings.page_after_seconds)
        cut_off = self._demand.drained is None
        if not self._demand.in_flight:
            patience_s = max(patience_s, self._settings.away_factor * self._away_s)
        if down_s < patience_s or self._loading.in_time(view.at_s):
            return unknown(f"refused for {in_words(down_s)}; {planned[0].text}")
        return run.found(
            "seconds_refused",
            down_s,
            *slow_load(self._loading, view.at_s, run.began_s),
            cause="crash",
            severity="page" if self._demand.in_flight >= CONFIRMED and cut_off else "ticket",
            summary=f"stopped {down_s / 60:.0f} min ago, apparently on purpose, and is not back",
            evidence_against=planned,
        )

    def _count_life(self, run: Run) -> None:
        if self._up_since_s is not None:
            self._lives.append(max(0.0, run.began_s - self._up_since_s))
        last = list(self._lives)[1:][-self._settings.loop_lives :]
        # The first uptime is ignored: its start was not seen, or the uptime was long.
        short = len(last) >= self._settings.loop_lives and sum(last) < self._settings.loop_seconds
        self._looping = short or self._loading.attempts >= self._settings.loop_starts

    def _crash(self, view: View, run: Run, signs: tuple[Evidence, ...]) -> Verdict:
        down_s, demand, settings = view.at_s - run.began_s, self._demand, self._settings
        few = demand.in_flight < CONFIRMED
        at_work = few and demand.at_work >= CONFIRMED
        used = demand.known and (at_work or not few)
        unused = not (used or signs or self._looping)
        run.unused = run.unused or unused
        early = down_s < self._patience_s(run)
        # An autoscaler may have stopped a server that became idle between polls.
        taken = not demand.known and down_s < settings.away_factor * self._away_s
        slow = slow_load(self._loading, view.at_s, run.began_s)
        core = view.around.left_core
        text = f"its engine core was left behind and still holds GPU memory: {core}"
        left = () if core is None else (Evidence(name="left_core", value=core, text=text),)
        against = demand.why_not_a_crash(idle=self._is_idle())
        how = demand.how_it_crashed(at_work=at_work)
        if self._looping:
            last = ", ".join(map(in_words, list(self._lives)[-3:]))
            how = f"crashed again: it ran for {last}, then refused connections"
            if self._loading.attempts >= settings.loop_starts:
                how = f"started {self._loading.attempts} times and never answered"
        return run.found(
            "seconds_refused",
            down_s,
            *(*left, *signs, *slow),
            cause="crash_loop" if self._looping else "crash",
            severity="ticket" if unused and (early or taken or self._is_idle()) else "page",
            summary="; ".join((how, *(each.text for each in slow))),
            evidence_against=against if unused else (),
        )

    def _is_idle(self) -> bool:
        demand, enough_s = self._demand, self._settings.idle_seconds
        if not self._away_s:
            enough_s = max(enough_s, demand.usual_silence_s)
        return demand.known and demand.idle_s >= enough_s

    def _absent(self, view: View, run: Run) -> Verdict:
        down_s, scaling = view.at_s - run.began_s, view.observation.scrape.scaling
        summary = f"/metrics and /health have been rejected for {in_words(down_s)}: {run.said}"
        patience_s = self._loading.patience_s(self._settings.page_after_seconds)
        # vLLM drains requests for two minutes (`drain_timeout`) and then moves ranks.
        # After a failure, it returns 503 forever.
        if down_s < (TEN_MINUTES_SECONDS if scaling else patience_s):
            return unknown(summary)
        idle = self._demand.drained is not None or self._is_idle()
        return run.found(
            "seconds_turned_away",
            down_s,
            cause="operation_stuck" if scaling else "unreachable",
            severity="ticket" if idle else "page",
            summary=summary,
        )

    def _silent(self, view: View, run: Run) -> Verdict:
        if self._answered_s is None:
            return self._still_silent(view, run)
        silent_s, settings = view.at_s - self._answered_s, self._settings
        hang = run.silent >= CONFIRMED
        if run.silent:
            looks = settings.silent_looks
            seconds = settings.silent_busy_seconds if self._busy else settings.silent_seconds
        else:
            looks, seconds = settings.unreachable_looks, settings.unreachable_seconds
        if run.mute < looks or silent_s < seconds:
            return unknown(f"no answer for {in_words(silent_s)}: {run.said}")
        in_flight = self._demand.in_flight
        text = f"it was busy when it last answered ({in_flight:.0f} requests)"
        busy = Evidence(name="requests_in_flight", value=in_flight, text=text)
        survived_s = 2.0 * max(self._silences, default=0.0)
        limit_s = max(settings.advise_seconds, survived_s)
        page_s = max(
            settings.silent_page_seconds, min(survived_s, settings.silent_page_seconds_max)
        )
        what = "it has not been reachable"
        if hang:
            what = "it has accepted connections but answered none"
        return run.found(
            "seconds_unanswered",
            silent_s,
            cause="api_hang" if hang else "unreachable",
            severity="ticket" if hang and silent_s < page_s else "page",
            restart_advised=hang and silent_s >= limit_s,
            summary=f"{what} for {in_words(silent_s)} ({run.looks} scrapes in a row)",
            evidence_against=(busy,) if self._busy else (),
        )

    def _still_silent(self, view: View, run: Run) -> Verdict:
        silent_s = view.at_s - run.mute_s
        up = self._earlier.is_up(view.observation.process)
        patience_s = self._earlier.patience_s(run.mute_s, up, self._settings.page_after_seconds)
        # A proxy without a server closes the calls that it accepts.
        few = run.held < self._settings.silent_looks or run.held != run.silent
        if patience_s is None or few or silent_s < patience_s:
            return unknown(f"no answer for {in_words(silent_s)}: {run.said}")
        return run.found(
            "seconds_unanswered",
            silent_s,
            *self._earlier.told(run.mute_s, up),
            cause="api_hang",
            severity="page",
            restart_advised=up is not None,
            summary=f"it has accepted connections but answered none for {in_words(silent_s)} ({run.looks} scrapes in a row)",
        )

    def _unhealthy(self, view: View) -> Verdict:
        health, looks, gpus = self._health, self._settings.dead_looks, self._gpus
        failed = f"/health failed {health.failed_looks} times in a row"
        said = health_failed(failed)
        if health.dead(view.at_s, looks, self._settings.silent_busy_seconds):
            return firing(
                cause="engine_dead",
                severity="page",
                restart_advised=not gpus.needs_hands,
                summary=f"the API server answers, but its engine core is dead: {failed}",
                evidence_for=(said, *gpus.evidence),
            )
        if health.moving_looks >= looks:
            text = "tokens were generated while /health failed"
            moved = Evidence(name="tokens_moved", value=1.0, expected=0.0, text=text)
            return firing(
                cause="health_failing",
                severity="ticket",
                summary=f"/health returns 503 while it serves: {failed}",
                evidence_for=(said, moved),
            )
        if health.told_dead:
            summary = f"{failed}, but tokens flowed"
            return well(cause="engine_dead", summary=summary)
        return unknown(f"/health failed {health.failed_looks} times")
