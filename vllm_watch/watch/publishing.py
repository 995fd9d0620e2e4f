"""What a scrape has brought goes here, once: to disk, to the recorder, to the board, and then to who acts and tells.

The fleet changes an incident last; the same record is then kept, shown, told and acted on. The board is complete before
anybody is told that there is something to read on it.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.looked import Looked
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
    """Reads the board when something happened: restarts, notifications."""

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        """A look at a target has ended, and led to these events, some of other targets perhaps."""


class Publisher:
    """The only one that writes what looks brought on the board."""

    def __init__(
        self,
        board: Board,
        fleet: Fleet,
        recorder: FlightRecorder,
        memory: Memory,
        listeners: Sequence[Listener],
    ) -> None:
        self._board = board
        self._fleet = fleet
        self._recorder = recorder
        self._memory = memory
        self._listeners = listeners

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
        """Show one look at a target, with when it was made. `late_s`: how much later than planned it began."""
        explained = frozenset(
            name
            for each in self._board.host.incidents.open.values()
            if each.severity == "page"
            for name in each.concerns
        )
        told = self._fleet.take(look.observation, _host_of(target), events, late_s, explained)
        if told:
            self._memory.save(self._fleet, "", told)
        self._memory.keep(watch, target.group, told)
        self._recorder.observe(look.observation, look.body, look.lines)
        self._board.publish(
            signals, incidents=map(self._fleet.shown, watch.incidents), events=told,
            calls=look.calls, looked=looked, late_seconds=late_s,
        )  # fmt: skip
        self._tell(target.name, told)

    def open(self, host: HostWatch) -> None:
        """Go on with what an earlier run knew of this host and of the fleet, before any target is taken up."""
        for watch in (host, self._fleet):
            self._memory.recall_whole(watch)
            self.over(self._memory.show(watch))

    def take_up(self, begun: Mapping[str, tuple[Target, Watch]]) -> None:
        """Show targets that are watched from now on with the incidents that an earlier run left, as the fleet sees them."""
        now_t = time.time()
        told = self._fleet.take_up(now_t, {
            name: (_host_of(target), watch.answered_t, watch.incidents)
            for name, (target, watch) in begun.items() if watch.signals is not None
        })  # fmt: skip
        for _, watch in begun.values():
            self.over(self._memory.show(watch, self._fleet.shown))
        self._spread(told)

    def host(
        self, reading: GpuReading, watch: HostWatch, events: Sequence[IncidentEvent], looked: Looked
    ) -> None:
        """Show one look at the GPUs of this host."""
        self._memory.keep(watch, watch.target, events)
        self._board.publish_gpus(
            reading, watch.holders, incidents=watch.incidents, events=events, looked=looked
        )
        self._tell(watch.target, events)

    def end_host(self, watch: HostWatch) -> None:
        """The GPUs of this host are watched no more."""
        events = watch.close(time.time())
        self._board.tell(events)
        self._memory.keep(watch, watch.target, events)
        self._tell(watch.target, events)

    def gone(self, target: str, group: str, watch: Watch) -> None:
        """Show a target no more; its incidents end with it."""
        t = watch.signals.t if watch.signals is not None else time.time()
        told = self._fleet.forget(target, t, watch.close(t))
        self._memory.save(self._fleet, "", told)
        self._memory.save(watch, group)
        self._memory.forget_pace(target)
        self._board.tell(told)
        self._board.remove_target(target)
        self._recorder.forget(target)
        self.over(told)

    def end_orphans(self, here: Collection[str]) -> None:
        """End what an earlier run left of targets that nobody watches, once they had time to come back."""
        self.over(self._memory.end_orphans(here))
        if self._memory.complete:
            self._spread(self._fleet.forget_all_but(here, time.time()))

    def _spread(self, told: Sequence[IncidentEvent]) -> None:
        """Keep, show and tell what no scrape has led to."""
        if told:
            self._memory.save(self._fleet, "", told)
            self._board.tell(told)
            self.over(told)

    def over(self, events: Sequence[IncidentEvent]) -> None:
        """Tell of ends that no look has led to."""
        for target in {event.incident.target for event in events}:
            self._tell(target, [each for each in events if each.incident.target == target])

    def _tell(self, target: str, events: Sequence[IncidentEvent]) -> None:
        _log_all(events)
        for listener in self._listeners:
            listener.saw(target, events)


@lru_cache(1024)
def _host_of(target: Target) -> str:
    return target.node or urlsplit(target.url).hostname or ""


def _log_all(events: Iterable[IncidentEvent]) -> None:
    """Log each beginning and end, each return, and each change of cause or severity."""
    for event in events:
        incident, before = event.incident, event.before
        said = {name: getattr(incident, name) for name in _LOGGED}
        pages = incident.severity == "page" and (before is None or before.severity != "page")
        log = _log.warning if pages else _log.info
        if event.event == OPENED:
            log("incident_opened", **said)
        elif event.event == RESOLVED:
            _log.info("incident_resolved", **said, resolution=incident.resolution)
        elif before is not None:
            was = {"cause_before": before.cause, "severity_before": before.severity}
            if before.recovering and not incident.recovering:
                log("incident_fires_again", **said, **was)
            elif (before.cause, before.severity) != (incident.cause, incident.severity):
                log("incident_changed", **said, **was)
