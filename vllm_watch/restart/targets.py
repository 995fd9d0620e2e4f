"""The targets that may be restarted, with their latest results."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import Incident
from vllm_watch.incidents.verdicts import RestartNews
from vllm_watch.restart.checks import clock
from vllm_watch.restart.facts import Peers
from vllm_watch.restart.gates import Gates
from vllm_watch.restart.verify import Before, Process, before
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.signals.records import TargetSignals
from vllm_watch.state.attempt import Attempt
from vllm_watch.support.waiting import happens

HEALTHY = frozenset(("idle", "serving", "prefilling", "overloaded"))
"""In these states an engine serves requests, though it may be at its limit."""

FRESH_SCRAPES, FRESH_SECONDS_MIN = 3.0, 30.0
"""The last scrape of another group member is recent if it is at most this many intervals or seconds old."""


HISTORY_SECONDS = 7 * 86400.0
"""Attempts are read if they are at most this much older than the oldest open incident. Budgets need
the attempts of one day, and breakers need the last attempt."""

SCRAPE_SECONDS = 60.0
"""The wait for a new scrape ends after two intervals and this many seconds. A scrape of a hanging server takes up to 30 s."""

TICK_SECONDS, SUSPENDED_SECONDS = 0.5, 2.5
"""Seconds between ticks of the event loop. A gap above SUSPENDED_SECONDS means that the machine was suspended."""


@dataclass(slots=True)
class ManagedTarget:
    """One watched target."""

    target: Target
    settings: RestartSettings
    draining: bool = False
    restarting: bool = False


class Targets:
    """All watched targets."""

    def __init__(self, board: Board, gates: Gates) -> None:
        self.managed: dict[str, ManagedTarget] = {}
        self._board = board
        self._gates = gates
        self._next_scrapes: dict[str, asyncio.Event] = {}
        self._changed: set[str] = set()
        self._change = asyncio.Event()
        self._ticked_s: float | None = None  # None if tick() does not run
        self._resumed_s = float("-inf")

    def follow(self, targets: Iterable[tuple[Target, RestartSettings]]) -> None:
        known, self.managed = self.managed, {}
        for target, settings in targets:
            managed = known.get(target.name) or ManagedTarget(target, settings)
            managed.target, managed.settings = target, settings
            self.managed[target.name] = managed
            self.mark_changed(target.name)
        for gone in known.keys() - self.managed.keys():
            self._gates.forget(gone)
            self._wake(gone)

    def scraped(self, name: str) -> None:
        signals = self.signals(name)
        if signals is not None:
            self._gates.scraped(signals)
        self._wake(name)

    def _wake(self, name: str) -> None:
        event = self._next_scrapes.pop(name, None)
        if event is not None:
            event.set()

    async def next_scrape(self, name: str, timeout_seconds: float) -> bool:
        event = self._next_scrapes.setdefault(name, asyncio.Event())
        return await happens(event, timeout_seconds)

    async def scraped_since(self, name: str, since_s: float) -> bool:
        """Wait for a scrape that began after `since_s` (monotonic). Return False if none comes in time."""
        entry, waited_until_s = self._board.targets.get(name), time.monotonic() + SCRAPE_SECONDS
        if entry is not None:
            waited_until_s += 2 * entry.interval_seconds
        while name in self.managed:
            looked = None if entry is None else entry.looked
            if looked is not None and looked.monotonic_s >= since_s:
                return True
            left_s = waited_until_s - time.monotonic()
            if left_s <= 0 or not await self.next_scrape(name, left_s):
                return False
            entry = self._board.targets.get(name)
        return False

    def signals(self, name: str) -> TargetSignals | None:
        entry = self._board.targets.get(name)
        return None if entry is None else entry.signals

    def process(self, name: str) -> Process:
        """Return the process seen in the last scrape, else the last process that answered."""
        managed, entry = self.managed.get(name), self._board.targets.get(name)
        looked = None if entry is None else entry.looked
        pids = () if looked is None else looked.pids
        target = None if managed is None else managed.target
        return Process.of(target, self.signals(name), pids)

    def before(self, name: str) -> Before:
        return before(self.signals(name), self.firing_kinds(name), self.process(name))

    def replaced(self, name: str, decided: Process, *, silence_counts: bool) -> str | None:
        """Return why the process `decided` may be gone, or None. If `silence_counts`, a process that does not answer counts as gone."""
        now = self.process(name)
        same = decided.is_same(now)
        if same is None:
            return "it is unknown whether the same process still serves"
        if not same:
            return another(now)
        if silence_counts and decided.up and not now.up:
            return "the process to be restarted no longer answers"
        return None

    async def tick(self) -> None:
        while True:
            self._notice_suspension()
            self._ticked_s = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)

    def _notice_suspension(self) -> None:
        now_s = time.monotonic()
        if self._ticked_s is not None and now_s - self._ticked_s > SUSPENDED_SECONDS:
            self._resumed_s = now_s

    def stale(self, name: str, incident: Incident | None) -> str | None:
        """Return why the last scrape of the target, or of the incident's target, is not current. None if both are current."""
        self._notice_suspension()
        entries = [self._board.targets.get(name)]
        if incident is not None:
            entries.append(self._board.entry(incident.target))
        for entry in entries:
            looked = None if entry is None else entry.looked
            if looked is None:
                return "there has been no scrape since vllm-watch started"
            if looked.monotonic_s < self._resumed_s:
                return "there has been no scrape since vllm-watch was suspended"
            against = looked.stale()
            if against is not None:
                return against
        return None

    def incident(self, incident_id: str | None) -> Incident | None:
        return None if incident_id is None else self._board.incidents.find(incident_id)

    def incidents(self) -> list[Incident]:
        return [
            each for entry in self._board.all_entries() for each in entry.incidents.open.values()
        ]

    def firing_kinds(self, name: str) -> frozenset[str]:
        """Return the kinds of incidents that the last scrape found, including other targets' incidents that advise restarting this target."""
        return frozenset(
            each.kind
            for each in self.incidents()
            if each.firing and (each.target == name or each.advises_restart_of(name))
        )

    def peers(self, name: str) -> Peers | None:
        """Return the group's health without the engines that go down with the target."""
        group, gang = self.group(name), self.gang(name)
        if not group:
            return None
        healthy, unknown, total = 0, 0, 1 if gang else max(1, self._engines(name).healthy)
        for other in group - self.same_engine(name) - set(gang):
            managed, engines = self.managed[other], self._engines(other)
            healthy += 0 if managed.restarting or managed.draining else engines.healthy
            total += engines.total
            unknown += engines.unknown
        return Peers(healthy=healthy, total=total, unknown=unknown)

    def _engines(self, name: str) -> Peers:
        entry = self._board.targets.get(name)
        signals = None if entry is None else entry.signals
        fresh_seconds = FRESH_SCRAPES * entry.interval_seconds if entry is not None else 0.0
        if signals is None or time.time() - signals.t > max(FRESH_SECONDS_MIN, fresh_seconds):
            return Peers(healthy=0, total=1, unknown=1)
        states = [engine.state for engine in signals.engines.values()] or [signals.state]
        serves = signals.up and signals.health_status in (None, 200)
        return Peers(
            healthy=sum(state in HEALTHY for state in states) if serves else 0,
            total=len(states),
            unknown=states.count("unknown"),
        )

    def startup_seconds(self, name: str) -> float | None:
        """Return how long the longest recent start of the target took. If this is unknown, use the starts of the target's group."""
        group, signals = self.group(name), self.signals(name)
        if group and signals is not None and signals.startup_seconds is not None:
            return signals.startup_seconds
        seen = (signals.startup_seconds for signals in map(self.signals, group) if signals)
        return max((seconds for seconds in seen if seconds is not None), default=None)

    def start_failure(self, name: str) -> str | None:
        signals = self.signals(name)
        found = None if signals is None else signals.start_failure
        if found is not None and found.deterministic:
            return found.sentence or found.explanation or found.failure
        entry = self._board.targets.get(name)
        loops = (
            each.summary
            for each in (entry.incidents.open.values() if entry else ())
            if each.cause == "crash_loop"
        )
        return next(loops, None)

    def group(self, name: str) -> frozenset[str]:
        """Return the targets of the target's group; empty if the target is not watched."""
        own = self.managed.get(name)
        group = None if own is None else own.target.group
        return frozenset(each for each, it in self.managed.items() if it.target.group == group)

    def gang(self, name: str) -> tuple[str, ...]:
        """Return the other members of the target's gang."""
        own = self.managed.get(name)
        gang = "" if own is None else own.target.gang
        alike = {each for each, it in self.managed.items() if gang and it.target.gang == gang}
        return tuple(sorted(alike - {name}))

    def same_engine(self, name: str) -> frozenset[str]:
        """Return the targets that share the address, the pod and port, or the PID."""
        own = self.managed.get(name)
        if own is None:
            return frozenset((name,))
        place, pids = own.target.place, set(self.process(name).pids)
        return frozenset(
            other
            for other, managed in self.managed.items()
            if other == name
            or managed.target.place == place
            or not pids.isdisjoint(self.process(other).pids)
        )

    def history_since_t(self, now_t: float) -> float:
        opened = (each.opened_t for each in self.incidents())
        return min((now_t, *opened)) - HISTORY_SECONDS

    def history(self, name: str, attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """Return attempts of the target's group and engine. Attempts of another target with the same engine are returned as attempts of `name`."""
        own, engine = self.managed.get(name), self.same_engine(name)
        if own is None:
            return ()
        group, members = own.target.group, engine.union(self.gang(name), self.group(name))
        addresses = {self.managed[each].target.address for each in members if each in self.managed}
        return tuple(
            replace(each, target=name)
            if each.target in engine or (each.address and each.address == own.target.address)
            else each
            for each in attempts
            if each.group == group
            or not members.isdisjoint(each.names)
            or each.address in addresses - {""}
        )

    def restarting(self, name: str, attempt: Attempt | None = None) -> None:
        """Mark the beginning of a restart, or its end if `attempt` is given."""
        managed = self.managed.get(name)
        if managed is not None:
            managed.restarting = attempt is None
        if attempt is not None:
            text = f"vllm-watch restarted it {clock(attempt.acted_t)}, and it did not come back"
            missing = text if attempt.state == "did_not_help" else None
            self._set_restart_news(name, RestartNews(missing=missing))

    def acting(self, name: str, *, on: bool) -> None:
        """While `on`, detectors expect that the server does not answer."""
        self._set_restart_news(name, RestartNews(under_way=on))

    def _set_restart_news(self, name: str, news: RestartNews) -> None:
        entry = self._board.targets.get(name)
        if name in self.managed and entry is not None:
            entry.restart_news = news

    def draining(self, name: str, *, on: bool) -> None:
        managed = self.managed.get(name)
        if managed is not None and managed.draining != on:
            managed.draining = on
            self._gates.draining(name, on=on)
            self.mark_changed(name)

    def mark_changed(self, name: str) -> None:
        self._changed.add(name)
        self._change.set()

    async def changes(self, timeout_seconds: float) -> set[str]:
        """Return the names of changed targets; after the timeout, all names."""
        if not await happens(self._change, timeout_seconds):
            return set(self.managed)
        self._change.clear()
        changed, self._changed = self._changed, set()
        return changed


def another(process: Process) -> str:
    """Return the reason "another process serves"."""
    since = "" if process.start_time is None else f" since {clock(process.start_time)}"
    return f"another process {'serves' if process.up else 'ran'}{since}"
