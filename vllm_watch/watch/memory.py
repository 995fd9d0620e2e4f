"""Save and restore the state of targets, host and fleet.

Without a state folder, the state survives only reloads.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import structlog

from vllm_watch.board.board import RESOLVED_MAX, Board
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import OPENED, RESOLVED, Incident, IncidentEvent, ended
from vllm_watch.samples.target import Target
from vllm_watch.state.incidents import IncidentTable, Learnt
from vllm_watch.watch.chart_memory import ChartMemory
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

SAVE_SECONDS = 60.0
"""Seconds between saves. State lost with a crash is learned again in this time."""

ORPHAN_SECONDS = 120.0
"""A stored target that is still missing this long after the start counts as gone. Some discovery
sources answer late."""

LEARNT_MAX = 10_000
"""Learnt state is kept for at most this many targets."""


class Remembered(Protocol):
    """A Watch, a HostWatch or the Fleet."""

    @property
    def target(self) -> str:
        """Name in stored state and incidents."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Open incidents."""

    def export_state(self) -> dict[str, Any] | None:
        """Return the state to save, or None."""


class Memory:
    """The state of all targets."""

    def __init__(
        self, disk: IncidentTable | None, board: Board, charts: ChartMemory | None = None
    ) -> None:
        self._disk = disk
        self._charts = charts
        self._board = board
        self._learnt: dict[str, Learnt] = {}  # newest, by target
        self._open: dict[str, Incident] = {}  # open on disk, not shown yet
        self._saved_s: dict[str, float] = {}
        self._opened_s = time.monotonic()

    async def open(self) -> None:
        self._opened_s = time.monotonic()
        if self._disk is None:
            return
        if self._charts is not None:
            _, contents = await asyncio.gather(self._charts.open(), self._disk.open(RESOLVED_MAX))
        else:
            contents = await self._disk.open(RESOLVED_MAX)
        self._learnt = {each.target: each for each in contents.learnt}
        self._open = {each.id: each for each in contents.open}
        self._board.incidents.add_resolved(contents.ended)

    def recall(self, watch: Watch, target: Target) -> None:
        """Restore a new Watch from its target's state, or from the state of another server of its group."""
        learnt, watch.address = self._learnt.get(target.name), target.url
        lost: list[str] = []
        if learnt is not None:
            lost = watch.restore(learnt.state, time.time())
        else:
            kin = [each for each in self._learnt.values() if each.group == target.group]
            lost = watch.inherit(max(kin, key=_saved_t).state) if kin else []
        self._log_recall(watch, learnt, lost)

    def recall_whole(self, watch: HostWatch | Fleet) -> None:
        learnt = self._learnt.get(watch.target)
        self._log_recall(watch, learnt, [] if learnt is None else watch.restore(learnt.state))

    def _log_recall(self, watch: Remembered, learnt: Learnt | None, lost: Sequence[str]) -> None:
        now = time.time()
        for part in lost:
            cause = f"the saved state of {watch.target} cannot be used: {part}"
            remedy = "It is ignored and learned again."
            _log.warning("state_entry_lost", target=watch.target, cause=cause, remedy=remedy)
            if self._board.store is not None:
                self._board.store.count("entry", cause, now)
        if learnt is not None:
            _log.info(
                "target_remembered", target=watch.target, incidents=len(watch.incidents),
                away_seconds=round(max(0.0, now - learnt.saved_t)),
            )  # fmt: skip

    def show(
        self, watch: Watch | HostWatch | Fleet,
        shown: Callable[[Incident], Incident] = lambda incident: incident,
    ) -> list[IncidentEvent]:  # fmt: skip
        """Show restored incidents once the target is on the board. Return the end events of incidents that no longer apply."""
        events = []
        for incident in map(shown, watch.incidents):
            self._open.pop(incident.id, None)
            events.append(IncidentEvent(OPENED, incident.opened_t, incident))
        self._board.restore_incidents(watch.target, events, watch.opened)
        lost = [each for each in self._open.values() if each.target == watch.target]
        return self._end(lost, "superseded")

    @property
    def complete(self) -> bool:
        return time.monotonic() - self._opened_s >= ORPHAN_SECONDS

    def end_orphans(self, targets: Iterable[str]) -> list[IncidentEvent]:
        if not self._open or not self.complete:
            return []
        here = set(targets)
        orphans = [each for each in self._open.values() if each.target not in here]
        return self._end(orphans, "target_gone")

    def _end(self, incidents: Sequence[Incident], resolution: str) -> list[IncidentEvent]:
        now = time.time()
        events = [IncidentEvent(RESOLVED, now, ended(each, now, resolution)) for each in incidents]
        for each in incidents:
            self._open.pop(each.id, None)
        self._board.incidents.add_resolved(event.incident for event in events)
        if self._disk is not None:
            self._disk.put(events)
        return events

    def keep(self, watch: Remembered, group: str, events: Sequence[IncidentEvent]) -> None:
        if self._disk is None:
            return
        saved_s = self._saved_s.setdefault(watch.target, time.monotonic())
        if events or time.monotonic() - saved_s >= SAVE_SECONDS:
            self.save(watch, group, events)
        if self._charts is not None:
            self._charts.keep(watch.target)

    def close(self) -> None:
        if self._charts is not None:
            self._charts.save()

    def save(self, watch: Remembered, group: str, events: Sequence[IncidentEvent] = ()) -> None:
        self._saved_s[watch.target] = time.monotonic()
        state = watch.export_state()
        learnt = None
        if state is not None:
            learnt = Learnt(target=watch.target, group=group, saved_t=time.time(), state=state)
            self._learnt.pop(watch.target, None)
            self._learnt[watch.target] = learnt
            while len(self._learnt) > LEARNT_MAX:
                del self._learnt[next(iter(self._learnt))]
        if self._disk is not None:
            self._disk.put(events, learnt)

    def forget_save_time(self, target: str) -> None:
        self._saved_s.pop(target, None)


def _saved_t(learnt: Learnt) -> float:
    return learnt.saved_t
