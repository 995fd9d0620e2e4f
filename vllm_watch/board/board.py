"""The latest results, and the changes that listeners have not read yet. They are written and read in one event loop, without locks."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Literal, get_args

from vllm_watch.board import uptime
from vllm_watch.board.health import NotifierHealth, SourceHealth, StoreHealth, WebHealth
from vllm_watch.board.history import SPANS, Charts, History, ring_seconds
from vllm_watch.board.restarts import RestartCounts, RestartPlan, RestartState
from vllm_watch.board.uptime import Day, Uptime
from vllm_watch.errors import WatchError
from vllm_watch.incidents.incident import OPENED, Incident, IncidentEvent, in_order
from vllm_watch.incidents.verdicts import RestartNews
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.samples.observation import Call
from vllm_watch.samples.record import changed
from vllm_watch.samples.target import WATCHER, Target, host_target
from vllm_watch.signals.holders.records import GpuHolders
from vllm_watch.signals.records import TargetSignals
from vllm_watch.story.kinds import KINDS

LISTENERS_MAX = 64  # each needs a socket, and is served at every change


class TooManyListenersError(WatchError):
    """Too many status pages are open."""


What = Literal["targets", "gone", "incidents", "gpus"]
"""Targets that were added or updated, or are gone, and incidents that were opened, changed or ended."""

_OPPOSITE: dict[What, What] = {"targets": "gone", "gone": "targets"}


class Updates:
    """The changes that one listener has not read yet."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.urgent = asyncio.Event()
        self._names: dict[What, set[str]] = {what: set() for what in get_args(What)}
        self._marked = asyncio.Event()

    async def wait(self) -> None:
        await self._marked.wait()

    def close(self) -> None:
        self.closed.set()
        self.urgent.set()
        self._marked.set()

    def mark(self, what: What, name: str = "", *, urgent: bool = False) -> None:
        """Mark a target, an incident or the GPUs, which have no name."""
        if urgent:
            self.urgent.set()
        self._names[what].add(name)
        if what in _OPPOSITE:
            self._names[_OPPOSITE[what]].discard(name)
        self._marked.set()

    def take(self) -> dict[What, list[str]]:
        """Return the names of all changes since the last read, sorted."""
        found = {what: sorted(names) for what, names in self._names.items()}
        for names in self._names.values():
            names.clear()
        self._marked.clear()
        if not self.closed.is_set():
            self.urgent.clear()
        return found


class Listeners:
    """All listeners."""

    def __init__(self) -> None:
        self._all: set[Updates] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Updates:
        """Raises TooManyListenersError."""
        if len(self._all) >= LISTENERS_MAX:
            raise TooManyListenersError(
                f"{len(self._all)} pages already listen to live updates, the limit is {LISTENERS_MAX}",
                "Close some of them, or read /api/v1/status at your own pace",
            )
        updates = Updates()
        self._all.add(updates)
        return updates

    def remove(self, updates: Updates) -> None:
        self._all.discard(updates)

    def close(self) -> None:
        for updates in self._all:
            updates.close()

    def mark(self, what: What, name: str = "", *, urgent: bool = False) -> None:
        for updates in self._all:
            updates.mark(what, name, urgent=urgent)


FRESH_SECONDS_MIN = 1.0
"""A scrape is fresh for at least this many seconds, because a busy watcher may be late."""

STEP_SECONDS = 1.0
"""If the two clocks diverge by more than this, a clock was set or the host slept."""

RESOLVED_MAX = 200  # enough for some hours of a bad day

BEFORE_SECONDS = 120.0

FROZEN_ENGINES_MAX = 4
"""The charts of at most this many engines are kept for an ended incident. A chart takes 4.3 KB."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The time of both clocks at the start of a scrape."""

    t: float
    monotonic_s: float
    fresh_seconds: float
    pids: frozenset[int] = frozenset()  # known engine processes on this host

    @classmethod
    def now(cls) -> "Looked":
        return cls(time.time(), time.monotonic(), 0.0)

    def ended(
        self, interval_seconds: float, timeout_seconds: float, pids: frozenset[int] = frozenset()
    ) -> "Looked":
        took_s = min(time.monotonic() - self.monotonic_s, timeout_seconds)
        fresh_s = max(FRESH_SECONDS_MIN, 2.0 * (interval_seconds + took_s))
        return Looked(self.t, self.monotonic_s, fresh_s, pids)

    def stale(self) -> str | None:
        now_s = time.monotonic()
        age_s = now_s - self.monotonic_s
        if age_s > self.fresh_seconds:
            return f"the last scrape is {age_s:.0f} s old"
        if abs(time.time() - self.t - age_s) > STEP_SECONDS:
            return "since the last scrape the clock was set, or the machine slept"
        return None


@dataclass(slots=True)
class TargetIncidents:
    """One target's open incidents by id, and totals by kind."""

    open: dict[str, Incident] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Incidents:
    """The incidents that are open, and at most RESOLVED_MAX that have ended."""

    def __init__(self) -> None:
        self._open: dict[str, Incident] = {}
        self._resolved: dict[str, Incident] = {}  # ordered by end time
        self.charts: dict[str, Charts] = {}  # of ended incidents

    def take(self, of: TargetIncidents, event: IncidentEvent) -> None:
        incident = event.incident
        if not incident.open:
            of.open.pop(incident.id, None)
            self._open.pop(incident.id, None)
            self.add_resolved([incident])
            return
        if event.event == OPENED and incident.id not in self._open:
            of.opened[incident.kind] = of.opened.get(incident.kind, 0) + 1
        self._resolved.pop(incident.id, None)
        of.open[incident.id] = self._open[incident.id] = incident

    def renew(self, of: TargetIncidents, latest: Incident) -> bool:
        """Update an open incident, and return True if it changed."""
        known = of.open.get(latest.id)
        if known is None or known == latest:
            return False
        of.open[latest.id] = self._open[latest.id] = latest
        return True

    def add_resolved(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            self._open.pop(incident.id, None)
            self._resolved.pop(incident.id, None)
            self._resolved[incident.id] = incident
            if len(self._resolved) > RESOLVED_MAX:
                oldest = next(iter(self._resolved))
                del self._resolved[oldest]
                self.charts.pop(oldest, None)

    def find(self, name: str) -> Incident | None:
        return self._open.get(name) or self._resolved.get(name)

    def listed(self) -> list[Incident]:
        """Return open incidents in display order, then ended incidents, newest first."""
        return [*in_order(self._open.values()), *reversed(self._resolved.values())]


@dataclass(slots=True)
class TargetEntry:
    """One target and its latest results."""

    target: Target
    interval_seconds: float
    signals: TargetSignals | None = None
    looked: Looked | None = None
    late_seconds: float | None = None  # after the planned start
    sources: dict[str, SourceHealth] = field(default_factory=dict)
    history: dict[str, History] = field(default_factory=dict)  # by engine label
    day: Day = field(default_factory=Day)
    uptime: Uptime = field(default_factory=Uptime)
    incidents: TargetIncidents = field(default_factory=TargetIncidents)
    restart: RestartPlan | None = None  # None if restarts are off
    restart_counts: RestartCounts = field(default_factory=RestartCounts)
    restart_news: RestartNews | None = None
    revision: int = 0


class Board:
    """The latest results. `window_seconds` is the averaging time of rates."""

    def __init__(self, window_seconds: float = 60.0, host: str = "localhost") -> None:
        self.window_seconds = window_seconds
        self.gpus: GpuReading | None = None
        self.holders: dict[str, GpuHolders] = {}
        self.host_sources: dict[str, SourceHealth] = {}
        self.external_url: str | None = None
        self.links: Mapping[str, str] = {}  # name → URL template
        self.store: StoreHealth | None = None  # None without a state folder
        self.web: WebHealth | None = None
        self.takes_tokens = False
        self.nothing_watched: str | None = None
        self.restarts: RestartState | None = None  # None if restarts are off everywhere
        self.notifiers: dict[str, NotifierHealth] = {}
        self.xid_errors: dict[str, dict[int, int]] = {}  # GPU UUID → Xid code → count
        self.incidents = Incidents()
        self.past: dict[str, TargetEntry] = {}  # history, day and uptime from an earlier run
        self.own = TargetEntry(Target(name=WATCHER, url=""), 0.0)
        """Incidents of the watcher, or of many targets together."""
        self.host = TargetEntry(Target(name=host_target(host), url="", node=host), 0.0)
        """Incidents of the host's GPUs."""
        self.listeners = Listeners()
        self._targets: dict[str, TargetEntry] = {}
        self.targets: Mapping[str, TargetEntry] = MappingProxyType(self._targets)

    def add_target(self, target: Target, interval_seconds: float) -> None:
        entry = self._targets.get(target.name)
        if entry is None:
            entry = self.past.pop(target.name, None) or TargetEntry(target, interval_seconds)
            self._targets[target.name] = entry
        entry.target, entry.interval_seconds = target, interval_seconds
        entry.revision += 1
        self.listeners.mark("targets", target.name)

    def remove_target(self, name: str) -> None:
        if self._targets.pop(name, None) is not None:
            self.listeners.mark("gone", name)

    def publish(
        self,
        signals: TargetSignals,
        *,
        incidents: Iterable[Incident] = (),
        events: Iterable[IncidentEvent] = (),
        calls: Iterable[tuple[str, Call]] = (),
        looked: Looked | None = None,
        late_seconds: float | None = None,
    ) -> None:
        """`incidents` are the target's open incidents. `late_seconds` is None for an unscheduled scrape."""
        entry = self._targets.get(signals.target)
        if entry is not None:
            for source, call in calls:
                self.call(source, signals.target, call.outcome, call.latency_s, signals.t)
            entry.signals, entry.looked, entry.late_seconds = signals, looked, late_seconds
            entry.revision += 1
            self._remember(entry, signals)
            self.listeners.mark("targets", signals.target)
        self.tell(events)
        if entry is not None:
            self._renew(entry, incidents)
            found = uptime.rank(signals, entry.incidents.open.values())
            entry.day.push(signals.t, found, entry.interval_seconds)
            entry.uptime.push(signals.t, found, entry.interval_seconds)

    def _renew(self, entry: TargetEntry, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            if self.incidents.renew(entry.incidents, incident):
                self.listeners.mark("incidents", incident.id)

    def _remember(self, entry: TargetEntry, signals: TargetSignals) -> None:
        # A target that is down reports no engines, but keeps its charts.
        for gone in entry.history.keys() - signals.engines.keys() if signals.engines else ():
            del entry.history[gone]
        for engine, now in signals.engines.items():
            history = entry.history.get(engine)
            if history is None:
                history = entry.history[engine] = History()
            history.push(signals.t, now)

    def tell(self, events: Iterable[IncidentEvent]) -> None:
        for event in events:
            incident = event.incident
            entry = self.entry(incident.target)
            if entry is None:
                continue
            self.incidents.take(entry.incidents, event)
            if not incident.open:
                charts = _charts(entry, incident)
                first = dict(islice(charts.engines.items(), FROZEN_ENGINES_MAX))
                if first and self.incidents.find(incident.id):
                    self.incidents.charts[incident.id] = changed(charts, engines=deepcopy(first))
            entry.revision += 1
            if incident.target in self._targets:
                self.listeners.mark("targets", incident.target)
            self.listeners.mark("incidents", incident.id, urgent=True)

    def charts_of(self, incident: Incident) -> Charts:
        entry = self.entry(incident.target)
        if incident.open and entry is not None:
            return _charts(entry, incident)
        kept = self.incidents.charts.get(incident.id)
        return kept or Charts(incident.resolved_t or incident.updated_t, SPANS[0], {})

    def entry(self, name: str) -> TargetEntry | None:
        for entry in (self.own, self.host):
            if name == entry.target.name:
                return entry
        return self._targets.get(name)

    def all_entries(self) -> tuple[TargetEntry, ...]:
        return (self.own, self.host, *self._targets.values())

    def restore_incidents(
        self, target: str, events: Iterable[IncidentEvent], opened: Mapping[str, int]
    ) -> None:
        """Restore incidents of an earlier run. `opened` maps each kind to its number of incidents."""
        self.tell(events)
        entry = self.entry(target)
        if entry is not None:
            entry.incidents.opened.update(opened)

    def show_restart(self, target: str, plan: RestartPlan | None, counts: RestartCounts) -> None:
        entry = self._targets.get(target)
        if entry is None or (entry.restart, entry.restart_counts) == (plan, counts):
            return
        entry.restart, entry.restart_counts = plan, counts
        entry.revision += 1
        self.listeners.mark("targets", target)

    def publish_gpus(
        self,
        reading: GpuReading,
        holders: Sequence[GpuHolders] = (),
        *,
        incidents: Iterable[Incident] = (),
        events: Iterable[IncidentEvent] = (),
        looked: Looked | None = None,
    ) -> None:
        self.gpus, self.host.looked = reading, looked
        self.holders = {each.gpu.uuid: each for each in holders}
        if reading.gpus is not None:
            seen = {gpu.uuid: self.xid_errors.get(gpu.uuid, {}) for gpu in reading.gpus}
            for gpu in reading.gpus:
                for code in gpu.xid_errors or ():
                    seen[gpu.uuid][code] = seen[gpu.uuid].get(code, 0) + 1
            self.xid_errors = seen
        self.tell(events)
        self._renew(self.host, incidents)
        self.listeners.mark("gpus")

    def call(
        self, source: str, target: str, outcome: str, duration_seconds: float, at: float
    ) -> None:
        """Count a call to a source. `target` is "" for the host's sources."""
        if not target:
            sources = self.host_sources
        elif (entry := self._targets.get(target)) is not None:
            sources = entry.sources
            entry.revision += 1
        else:
            return
        sources.setdefault(source, SourceHealth()).count(outcome, duration_seconds, at)


def _charts(entry: TargetEntry, incident: Incident) -> Charts:
    last_t = entry.signals.t if entry.signals else incident.updated_t
    t = last_t if incident.resolved_t is None else incident.resolved_t
    seconds = ring_seconds(t - incident.began_t + BEFORE_SECONDS)
    own = {name: each for name, each in entry.history.items() if incident.engine in (None, name)}
    return Charts(t, seconds, {name: each.ring(seconds) for name, each in own.items()})
