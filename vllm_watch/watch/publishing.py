"""Publish each scrape once: to disk, recorder and board, then to the listeners.

The fleet stage (incidents/fleet.py) links incidents of many targets. No later stage changes an
incident.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from vllm_watch.board.board import Board, Looked
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import OPENED, RESOLVED, IncidentEvent
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.samples.target import Target
from vllm_watch.signals.records import TargetSignals
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.vllm import Look
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

_LOGGED = ("id", "target", "engine", "kind", "cause", "severity", "summary")


class Listener(Protocol):
    """Reads the board after each scrape."""

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        """Handle a scrape of `target`. Events may concern other targets, too."""


@dataclass(slots=True, eq=False)
class Publisher:
    """The only writer of scrape results on the board."""

    board: Board
    fleet: Fleet
    recorder: FlightRecorder
    memory: Memory
    listeners: Sequence[Listener]

    def look(
        self,
        target: Target,
        watch: Watch,
        look: Look,
        signals: TargetSignals,
        events: Sequence[IncidentEvent],
        looked: Looked,
        late_s: float,
    ) -> None:
        """Publish a scrape, which began `late_s` seconds late."""
        explained = frozenset(
            name
            for each in self.board.host.incidents.open.values()
            if each.severity == "page"
            for name in each.concerns
        )
        changes = self.fleet.take(look.observation, _host_of(target), events, late_s, explained)
        if changes:
            self.memory.save(self.fleet, "")
        self.memory.keep(watch, target.group, changes)  # written last
        self.recorder.observe(look.observation, look.body, look.lines)
        self.board.publish(
            signals, incidents=tuple(map(self.fleet.shown, watch.incidents)), events=changes,
            calls=look.calls, looked=looked, late_seconds=late_s,
        )  # fmt: skip
        self._notify(target.name, changes)

    def open(self, host: HostWatch) -> None:
        """Restore the host and the fleet before any target is added."""
        for watch in (host, self.fleet):
            self.memory.recall_whole(watch)
            self.notify(self.memory.show(watch))

    def take_up(self, begun: Mapping[str, tuple[Target, Watch]]) -> None:
        """Let the fleet stage link the restored incidents of new targets, and show them."""
        now_t = time.time()
        changes = self.fleet.take_up(now_t, {
            name: (_host_of(target), watch.answered_t, watch.incidents)
            for name, (target, watch) in begun.items() if watch.signals is not None
        })  # fmt: skip
        for _, watch in begun.values():
            self.notify(self.memory.show(watch, self.fleet.shown))
        self._publish_events(changes)

    def host(
        self, reading: GpuReading, watch: HostWatch, events: Sequence[IncidentEvent], looked: Looked
    ) -> None:
        self.memory.keep(watch, watch.target, events)
        self.board.publish_gpus(
            reading, watch.holders, incidents=watch.incidents, events=events, looked=looked
        )
        self._notify(watch.target, events)

    def end_host(self, watch: HostWatch) -> None:
        events = watch.close(time.time())
        self.board.tell(events)
        self.memory.keep(watch, watch.target, events)
        self._notify(watch.target, events)

    def gone(self, target: Target, watch: Watch) -> None:
        t = watch.signals.t if watch.signals is not None else time.time()
        changes = self.fleet.forget(target.name, t, watch.close(t))
        self.memory.save(self.fleet, "")
        self.memory.save(watch, target.group, changes)  # written last
        self.memory.forget_save_time(target.name)
        self.board.tell(changes)
        self.board.remove_target(target.name)
        self.recorder.forget(target.name)
        self.notify(changes)

    def end_orphans(self, here: Collection[str]) -> None:
        self.notify(self.memory.end_orphans(here))
        if self.memory.complete:
            self._publish_events(self.fleet.forget_all_but(here, time.time()))

    def _publish_events(self, changes: Sequence[IncidentEvent]) -> None:
        if changes:
            self.memory.save(self.fleet, "", changes)
            self.board.tell(changes)
            self.notify(changes)

    def notify(self, events: Sequence[IncidentEvent]) -> None:
        """Log events that no scrape caused, and call the listeners."""
        for target in {event.incident.target for event in events}:
            self._notify(target, [each for each in events if each.incident.target == target])

    def _notify(self, target: str, events: Sequence[IncidentEvent]) -> None:
        _log_all(events)
        for listener in self.listeners:
            listener.saw(target, events)


@lru_cache(1024)
def _host_of(target: Target) -> str:
    return target.node or urlsplit(target.url).hostname or ""


def _log_all(events: Iterable[IncidentEvent]) -> None:
    for event in events:
        incident, before = event.incident, event.before
        fields = {name: getattr(incident, name) for name in _LOGGED}
        pages = incident.severity == "page" and (before is None or before.severity != "page")
        log = _log.warning if pages else _log.info
        if event.event == OPENED:
            log("incident_opened", **fields)
        elif event.event == RESOLVED:
            _log.info("incident_resolved", **fields, resolution=incident.resolution)
        elif before is not None:
            was = {"cause_before": before.cause, "severity_before": before.severity}
            if before.recovering and not incident.recovering:
                log("incident_fires_again", **fields, **was)
            elif (before.cause, before.severity) != (incident.cause, incident.severity):
                log("incident_changed", **fields, **was)
