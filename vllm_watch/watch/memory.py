"""Save and restore the state of targets, host and fleet, and the charts.

Without a state folder, the state survives only reloads.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import structlog

from vllm_watch.board import uptime
from vllm_watch.board.board import RESOLVED_MAX, Board, TargetEntry
from vllm_watch.board.history import FORM, History
from vllm_watch.board.uptime import Day
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import OPENED, RESOLVED, Incident, IncidentEvent, ended
from vllm_watch.samples.target import Target
from vllm_watch.state.charts import UPTIME, ChartTable, Part
from vllm_watch.state.incidents import IncidentTable, Learnt
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.watch import Watch

CHARTS_SAVE_SECONDS = 300.0
"""Seconds between saves. A save writes 13 KB per engine."""

PARTS_MAX = 1000
"""At most this many charts are saved. Further charts start empty."""

_DAY, _ENGINE = "day", "engine "


def _is_ours(part: Part) -> bool:
    if part.name == _DAY:
        return part.form.split()[:2] == FORM.split()[:2]
    return part.form == (uptime.FORM if part.name == UPTIME else FORM)


class ChartMemory:
    """The saved charts of all targets."""

    def __init__(self, disk: ChartTable, board: Board) -> None:
        self._disk = disk
        self._board = board
        self._saved_s: dict[str, float] = {}
        self._parts: set[tuple[str, str]] = set()

    async def open(self) -> None:
        """Read the charts; the board shows them once their targets are added."""
        for part in await self._disk.open():
            if not _is_ours(part):
                continue
            empty = TargetEntry(Target(name=part.target, url=""), 0.0)
            past = self._board.past.setdefault(part.target, empty)
            try:
                if part.name == _DAY:
                    past.day = Day.restored(part.data)
                elif part.name == UPTIME:
                    past.uptime = uptime.Uptime.restored(part.data)
                else:
                    label = part.name.removeprefix(_ENGINE)
                    past.history[label] = History.restored(part.data)
            except ValueError as error:
                self._disk.damaged(part, str(error))

    def keep(self, target: str) -> None:
        now_s = time.monotonic()
        if now_s - self._saved_s.setdefault(target, now_s) >= CHARTS_SAVE_SECONDS:
            self._save(target)

    def save(self) -> None:
        for target in self._board.targets:
            self._save(target)

    def _save(self, target: str) -> None:
        self._saved_s[target] = time.monotonic()
        for part in self._parts_of(target):
            key = (part.target, part.name)
            if len(self._parts) >= PARTS_MAX and key not in self._parts:
                here = self._board.targets
                self._parts = {each for each in self._parts if each[0] in here}
                self._saved_s = {name: s for name, s in self._saved_s.items() if name in here}
            if len(self._parts) < PARTS_MAX or key in self._parts:
                self._parts.add(key)
                self._disk.put(part)

    def _parts_of(self, target: str) -> Iterator[Part]:
        entry = self._board.targets.get(target)
        if entry is not None:
            yield Part(target, UPTIME, uptime.FORM, entry.uptime.export())
            yield Part(target, _DAY, FORM, entry.day.export())
            for label, history in entry.history.items():
                yield Part(target, _ENGINE + label, FORM, history.export())


_log = structlog.get_logger()

SAVE_SECONDS = 60.0
"""Seconds between saves. State lost with a crash is learned again in this time."""

ORPHAN_SECONDS = 120.0
"""A stored target that is still missing this long after the start counts as gone. Some discovery
sources answer late."""

LEARNT_MAX = 10_000
"""Learnt state is kept for at most this many targets."""


Remembered = Watch | HostWatch | Fleet


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
            lost = watch.inherit(max(kin, key=attrgetter("saved_t")).state) if kin else []
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
        self, watch: Remembered, shown: Callable[[Incident], Incident] = lambda incident: incident
    ) -> list[IncidentEvent]:
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
