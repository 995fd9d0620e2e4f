"""The fleet: watchers that restart what is ill, with the guard and the lock that the product has.

Simulated are engines, hooks, hosts and the network; what decides is `guard.decide` and `locks.record`, and
what surrounds them follows restart/attempts.py and restart/locks/lease.py step by step.
"""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

from benchmarks.fleet.clockwork import Clockwork, Doing, Store, Watcher
from vllm_watch.incidents.incident import Incident
from vllm_watch.restart import guard
from vllm_watch.restart.facts import Answer, Facts, RestartRequest
from vllm_watch.restart.locks import lease, record
from vllm_watch.restart.locks.record import Change, Limits, Now, Record, Release, Slot
from vllm_watch.settings.restart import LockSettings, RestartSettings
from vllm_watch.state.attempt import Attempt

HOUR = 3600.0
ASK_SECONDS = 60.0  # the product asks every five, which shows the same and takes longer
SETTINGS = RestartSettings(
    mode="auto", hook="hook", triggers=("incident",), lock=LockSettings(kind="lease"), peers="none",
    new_version_seconds=0,
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """What there is, and how bad it gets."""

    name: str
    watchers: int = 200
    engines: int = 1000
    hours: float = 3.0
    limits: Limits = Limits(slots=5, per_hour=50)  # noqa: RUF009 - frozen
    ttl_s: float = 60.0
    skew_s: float = 2.0  # between any two wall clocks
    pause_s: float = 60.0  # the longest; some begin at the worst moments
    hook_s: float = 60.0  # the longest
    cut_s: float = 60.0  # the longest time without the API server
    down_s: float = 60.0  # the longest from a crash to the next start


@dataclass
class Engine:
    """One server, and what its watcher's journal knows of it."""

    name: str
    ill: bool = False
    loading_until: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)


@dataclass
class Seen:
    """What the simulation counts."""

    began: list[float] = field(default_factory=list)  # every call of a hook
    acting: int = 0
    acting_worst: int = 0
    away: int = 0  # servers that were called for and are not back
    away_worst: int = 0
    stopped: int = 0  # attempts that ended because their lock was lost or could not be renewed
    ghosts: int = 0  # slots taken up from who did not renew
    twice: int = 0  # hooks called for a server that is being restarted

    def hour_worst(self) -> int:
        worst = first = 0
        for last, t in enumerate(self.began):
            while self.began[first] <= t - HOUR:
                first += 1
            worst = max(worst, last - first + 1)
        return worst


class LostError(Exception):
    """The API server did not answer; `sent`: it may have done what it was asked."""

    sent = False


class Fleet:
    """One run."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seen, self.store = world, Seen(), Store()
        self.clockwork = Clockwork(seed)
        self.chance = self.clockwork.chance
        self._number = 0
        each = world.engines // world.watchers
        for number in range(world.watchers):
            skew_s = self.chance.uniform(-world.skew_s / 2, world.skew_s / 2)
            watcher = Watcher(f"w{number}", skew_s, self.chance.uniform(0, 1e6))
            engines = [Engine(f"e{number}-{at}") for at in range(each)]
            self._live(watcher, engines)
            self.clockwork.at(self._soon(HOUR), lambda w=watcher, e=engines: self._trouble(w, e))

    def run(self) -> Seen:
        self.clockwork.run(self.world.hours * HOUR)
        return self.seen

    # --- hosts, engines and the network

    def _soon(self, mean_s: float) -> float:
        """No two troubles of one host follow each other at once: bounds are for each."""
        return self.clockwork.t + 4 * self.world.ttl_s + self.chance.expovariate(1 / mean_s)

    def _trouble(self, watcher: Watcher, engines: list[Engine]) -> None:
        world, t = self.world, self.clockwork.t
        what = self.chance.choice(["pause", "cut", "crash"])
        if what == "pause":
            watcher.paused_until = t + self.chance.uniform(0, world.pause_s)
        elif what == "cut":
            watcher.cut_until = t + self.chance.uniform(0, world.cut_s)
        else:
            watcher.life += 1
            watcher.down_until = t + self.chance.uniform(0, world.down_s)
            watcher.sightings, watcher.left = record.Sightings(), {}
            self.clockwork.at(watcher.down_until, lambda: self._live(watcher, engines))
        over = max(watcher.paused_until, watcher.cut_until, watcher.down_until, t)
        self.clockwork.at(over + self._soon(HOUR) - t, lambda: self._trouble(watcher, engines))

    def _live(self, watcher: Watcher, engines: list[Engine]) -> None:
        """Begin, or begin again with what the journal knows."""
        for engine in engines:
            last = engine.attempts[-1] if engine.attempts else None
            if last is not None and last.state == "intent":
                engine.attempts[-1] = replace(last, state="cancelled")
            elif last is not None and last.open:
                self.clockwork.go(watcher, self._take_up(watcher, engine, last))
            self.clockwork.go(watcher, self._watch(watcher, engine))

    def _worst_moment(self, watcher: Watcher) -> None:
        """One in ten is paused just where it hurts."""
        if self.chance.random() < 0.1:
            pause_s = self.chance.uniform(0.5, 1) * self.world.pause_s
            watcher.paused_until = max(watcher.paused_until, self.clockwork.t + pause_s)

    def _watch(self, watcher: Watcher, engine: Engine) -> Doing:
        """Every engine falls ill some time; a third of the fleet does within a minute of the second hour."""
        yield self.chance.uniform(0, ASK_SECONDS)
        mass_t = HOUR + self.chance.uniform(0, 60) if self.chance.random() < 0.3 else None
        while True:
            ill_t = self.clockwork.t + self.chance.expovariate(1 / (20 * HOUR))
            if mass_t is not None and self.clockwork.t < mass_t:
                ill_t = min(ill_t, mass_t)
            if not engine.ill:
                yield ill_t - self.clockwork.t
                engine.ill = True
            while engine.ill:
                yield from self._ask(watcher, engine)
                yield self.chance.uniform(0.5, 1.5) * ASK_SECONDS

    # --- the API server, as locks/lease.py calls it

    def _change(
        self, watcher: Watcher, what: Callable[[Record, Now], Change]
    ) -> Generator[float, None, tuple[Change, float]]:
        for tries in range(lease.TRIES_MAX):
            if tries:
                yield self.chance.uniform(0, lease.BACKOFF_SECONDS * 2**tries)
            yield from self._way(watcher)
            found, version = self.store.record, self.store.version
            yield from self._way(watcher)
            now = watcher.now(self.clockwork.t)
            watcher.sightings.see(found, now.monotonic_s)
            kept = found
            for attempt_id, used in watcher.left.items():
                freed = record.give_back(kept, now, Release(attempt_id, used=used))
                kept = freed.record if kept.of(attempt_id) and freed.record else kept
            change = what(kept, now)
            sent_s = now.monotonic_s
            if change.record is None:
                return change, sent_s
            self._worst_moment(watcher)
            yield from self._way(watcher)
            written = self.store.replace(version, change.record)
            try:
                yield from self._way(watcher)
            except LostError as error:
                error.sent = True
                raise
            if written:
                held = {slot.attempt_id for slot in change.record.held}
                self.seen.ghosts += any(
                    slot.attempt_id not in held and slot.attempt_id not in watcher.left
                    for slot in found.held
                    if slot.holder != watcher.name
                )
                watcher.left = {
                    name: used for name, used in watcher.left.items() if change.record.of(name)
                }
                return change, sent_s
        raise LostError

    def _way(self, watcher: Watcher) -> Doing:
        if watcher.cut_until > self.clockwork.t:
            yield 10.0
            raise LostError
        yield self.chance.uniform(0.001, 0.05)

    # --- one request, as the dispatcher and attempts.py carry it out

    def _facts(
        self, watcher: Watcher, engine: Engine, lock: Answer | None, attempt_id: str
    ) -> Facts:
        return Facts(
            t=watcher.now(self.clockwork.t).unix_t,
            state="starting" if engine.loading_until > self.clockwork.t else "stalled",
            attempts=tuple(each for each in engine.attempts if each.id != attempt_id),
            incident=Incident(
                id="i", target=engine.name, engine=None, kind="engine_stalled", cause="hang",
                severity="page", summary="ill", restart_advised=True, opened_t=0.0, began_t=0.0, updated_t=0.0,
                resolved_t=None if engine.ill else 0.0,
            ),
            stale=None, version_first_t=0.0, hook=Answer(name="hook", allows=True, text="it can"), lock=lock,
        )  # fmt: skip

    def _decide(
        self, watcher: Watcher, engine: Engine, lock: Answer | None, attempt_id: str
    ) -> guard.Decision:
        request = RestartRequest(
            target=engine.name, group=engine.name, trigger="incident", reason="ill", asked_t=0.0,
            incident_id="i",
        )  # fmt: skip
        return guard.decide(request, SETTINGS, self._facts(watcher, engine, lock, attempt_id))

    def _ask(self, watcher: Watcher, engine: Engine) -> Doing:
        decision = self._decide(watcher, engine, None, "")
        if (decision.verdict, decision.check) != (guard.ASK, "lock"):
            return
        self._number += 1
        attempt_id = f"a{self._number}"
        wanted = Slot(holder=watcher.name, attempt_id=attempt_id, ttl_seconds=self.world.ttl_s)
        try:
            change, _ = yield from self._change(
                watcher,
                lambda kept, now: record.take(
                    kept, watcher.sightings, self.world.limits, now, wanted
                ),
            )
        except LostError as error:
            if error.sent:
                watcher.left[attempt_id] = False
            return
        if change.record is not None:
            yield from self._attempt(watcher, engine, attempt_id)

    def _attempt(self, watcher: Watcher, engine: Engine, attempt_id: str) -> Doing:
        engine.attempts.append(self._intent(watcher, engine, attempt_id))
        yield self.chance.uniform(0, 60)  # evidence, and requests that may finish
        until_s = yield from self._renew(watcher, attempt_id)
        lock = Answer(name="lock", allows=until_s is not None, text="")
        agreed = self._decide(watcher, engine, lock, attempt_id).verdict == guard.ACT
        yield 0.01  # the call is written down
        self._worst_moment(watcher)
        yield 0.001
        # From here to the call there is nothing that could ask once more.
        if not agreed or until_s is None or watcher.now(self.clockwork.t).monotonic_s >= until_s:
            self.seen.stopped += 1
            self._state(engine, "cancelled")
            yield from self._give_back(watcher, attempt_id, used=False)
            return
        self._state(engine, "calling")
        self._worst_moment(watcher)
        yield 0.001
        hook_s = self._call(engine)
        stop = self._renewing(watcher, attempt_id)
        yield hook_s
        self._state(engine, "verifying")
        yield from self._verify(watcher, engine, attempt_id, stop)

    def _intent(self, watcher: Watcher, engine: Engine, attempt_id: str) -> Attempt:
        return Attempt(
            id=attempt_id, target=engine.name, group=engine.name, trigger="incident", hook="hook",
            reason="ill", actor="vllm-watch", state="intent", began_t=watcher.now(self.clockwork.t).unix_t,
        )  # fmt: skip

    def _state(self, engine: Engine, state: str) -> None:
        engine.attempts[-1] = replace(engine.attempts[-1], state=state)

    def _call(self, engine: Engine) -> float:
        """Call the hook: it ends by itself, and then the server loads, whatever becomes of the watcher."""
        seen, t = self.seen, self.clockwork.t
        hook_s = self.world.hook_s * max(0.02, 1 - self.chance.random() ** 2)
        load_s = self.chance.uniform(60, 300)
        seen.twice += engine.loading_until > t
        engine.loading_until = t + hook_s + load_s
        seen.began.append(t)
        seen.acting += 1
        seen.away += 1
        seen.acting_worst = max(seen.acting_worst, seen.acting)
        seen.away_worst = max(seen.away_worst, seen.away)
        self.clockwork.at(t + hook_s, self._hook_ended)
        self.clockwork.at(t + hook_s + load_s, lambda: self._loaded(engine))
        return hook_s

    def _hook_ended(self) -> None:
        self.seen.acting -= 1

    def _loaded(self, engine: Engine) -> None:
        self.seen.away -= 1
        engine.ill = self.chance.random() < 0.05  # it did not help

    def _verify(
        self, watcher: Watcher, engine: Engine, attempt_id: str, stop: Callable[[], None]
    ) -> Doing:
        while engine.loading_until > self.clockwork.t:
            yield engine.loading_until - self.clockwork.t + 1
        stop()
        self._state(engine, "did_not_help" if engine.ill else "helped")
        yield from self._give_back(watcher, attempt_id, used=True)

    def _take_up(self, watcher: Watcher, engine: Engine, attempt: Attempt) -> Doing:
        """After a crash: nothing is called again; the slot is held on to and the rest verified."""
        self._state(engine, "verifying")
        wanted = Slot(holder=watcher.name, attempt_id=attempt.id, ttl_seconds=self.world.ttl_s)
        with contextlib.suppress(LostError):
            yield from self._change(
                watcher,
                lambda kept, now: record.take(
                    kept, watcher.sightings, self.world.limits, now, wanted
                ),
            )
        yield from self._verify(watcher, engine, attempt.id, self._renewing(watcher, attempt.id))

    def _renew(self, watcher: Watcher, attempt_id: str) -> Generator[float, None, float | None]:
        """Return until when it may be believed in."""
        try:
            change, sent_s = yield from self._change(
                watcher, lambda kept, now: record.renew(kept, attempt_id)
            )
        except LostError:
            return None
        return None if change.record is None else sent_s + self.world.ttl_s

    def _renewing(self, watcher: Watcher, attempt_id: str) -> Callable[[], None]:
        stopped: list[bool] = []

        def renewing() -> Doing:
            while not stopped:
                yield self.world.ttl_s / 3
                if not stopped:
                    yield from self._renew(watcher, attempt_id)

        self.clockwork.go(watcher, renewing())
        return lambda: stopped.append(True)

    def _give_back(self, watcher: Watcher, attempt_id: str, *, used: bool) -> Doing:
        try:
            yield from self._change(
                watcher,
                lambda kept, now: record.give_back(kept, now, Release(attempt_id, used=used)),
            )
        except LostError:
            watcher.left[attempt_id] = used
