"""What the daemon remembers: which kept state belongs to which target, and when it is kept again.

With a state folder it outlives the process; without one it still hands a target's state over when a
reload changes how the target is watched.
"""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.health import StoreHealth
from vllm_watch.board.incidents import RESOLVED_MAX
from vllm_watch.incidents.incident import (
    OPENED,
    RESOLVED,
    Incident,
    IncidentEvent,
    ended,
    from_published,
    published,
)
from vllm_watch.samples.target import Target
from vllm_watch.signals import stored
from vllm_watch.state.rows import IncidentRow, WatchRow
from vllm_watch.state.store import Store
from vllm_watch.state.troubles import Trouble
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

SAVE_SECONDS = 60.0
"""What was learnt is kept this often: a minute's learning is learnt again in a minute."""

ORPHAN_SECONDS = 120.0
"""A target that has not come back so long after the start is gone, and its incidents with it: discovery
asks every few seconds, and some sources answer late."""

STATES_MAX = 10_000
"""As many as there may be targets."""


class Remembered(Protocol):
    """A Watch or a HostWatch."""

    @property
    def target(self) -> str:
        """Under which name its state and its incidents are kept."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The open ones."""

    def export_state(self) -> dict[str, Any] | None:
        """What should outlive the watcher; None while there is nothing."""


class Memory:
    """One process's memory of its targets."""

    def __init__(self, state_dir: Path | None, board: Board) -> None:
        self._board = board
        self._states: dict[str, WatchRow] = {}  # the newest that is known, by target
        self._open: dict[str, Incident] = {}  # read as open, and not taken up yet
        self._saved_s: dict[str, float] = {}  # monotonic time of the last save, by target
        self._opened_s = time.monotonic()
        self._store = None if state_dir is None else self._new_store(state_dir)
        if state_dir is not None:
            board.store = StoreHealth(str(state_dir))

    def _new_store(self, state_dir: Path) -> Store:
        return Store(state_dir, self._tell)

    def _tell(self, trouble: Trouble | None, t: float) -> None:
        assert self._board.store is not None  # noqa: S101 - made with the store
        self._board.store.count(trouble and trouble.reason, trouble and trouble.cause, t)

    @property
    def holds(self) -> bool:
        """Is there a state folder, held for this process and for no other?"""
        return self._store is not None and self._store.holds

    async def open(self) -> None:
        """Read what was kept, and show the incidents that ended."""
        self._opened_s = time.monotonic()
        if self._store is None:
            return
        contents = await self._store.open()
        self._states = {row.target: row for row in contents.watches}
        known = [each for row in contents.incidents if (each := _incident(row)) is not None]
        self._open = {each.id: each for each in known if each.open}
        past = [each for each in known if not each.open]
        self._board.incidents.add_resolved(past[-RESOLVED_MAX:])

    def recall(self, watch: Watch, target: Target) -> None:
        """Give a Watch that has seen nothing yet what is known of its target, or of its group."""
        row, watch.address = self._states.get(target.name), target.url
        lost: list[str] = []
        if row is not None:
            lost = watch.restore(row.state, time.time())
        else:
            kin = [each for each in self._states.values() if each.group == target.group]
            lost = watch.inherit(max(kin, key=_saved_t).state) if kin else []
        self._recalled(watch, row, lost)

    def recall_host(self, watch: HostWatch) -> None:
        """The same for the host."""
        row = self._states.get(watch.target)
        self._recalled(watch, row, [] if row is None else watch.restore(row.state))

    def _recalled(self, watch: Remembered, row: WatchRow | None, lost: Sequence[str]) -> None:
        now = time.time()
        for part in lost:
            cause = f"what was kept of {watch.target} cannot be used: {part}"
            remedy = "It is left out, and learnt anew."
            _log.warning("state_entry_lost", target=watch.target, cause=cause, remedy=remedy)
            if self._board.store is not None:
                self._board.store.count("entry", cause, now)
        if row is not None:
            _log.info(
                "target_remembered", target=watch.target, incidents=len(watch.incidents),
                away_seconds=round(max(0.0, now - row.saved_t)),
            )  # fmt: skip

    def show(self, watch: Watch | HostWatch) -> list[IncidentEvent]:
        """Show what was taken up, once it is on the board; return the ends of what nobody follows any more."""
        events = []
        for incident in watch.incidents:
            self._open.pop(incident.id, None)
            events.append(IncidentEvent(OPENED, incident.opened_t, incident))
        self._board.restore_incidents(watch.target, events, watch.opened)
        lost = [each for each in self._open.values() if each.target == watch.target]
        return self._end(lost, "superseded")

    def end_orphans(self, targets: Iterable[str]) -> list[IncidentEvent]:
        """End the incidents of targets that are watched no more, when they had time to come back."""
        if not self._open or time.monotonic() - self._opened_s < ORPHAN_SECONDS:
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
        if self._store is not None and events:
            self._store.put(map(_row, events))
        return events

    def keep(self, watch: Remembered, group: str, events: Sequence[IncidentEvent]) -> None:
        """Have incident events written at once, and what was learnt now and then; nothing waits for the disk."""
        if self._store is None:
            return
        saved_s = self._saved_s.setdefault(watch.target, time.monotonic())
        if events or time.monotonic() - saved_s >= SAVE_SECONDS:
            self.save(watch, group, events)

    def save(self, watch: Remembered, group: str, events: Sequence[IncidentEvent] = ()) -> None:
        """Keep it now; the disk has it soon."""
        self._saved_s[watch.target] = time.monotonic()
        state = watch.export_state()
        row = None
        if state is not None:
            row = WatchRow(target=watch.target, group=group, saved_t=time.time(), state=state)
            self._states.pop(watch.target, None)
            self._states[watch.target] = row
            while len(self._states) > STATES_MAX:
                del self._states[next(iter(self._states))]
        if self._store is not None:
            self._store.put(map(_row, events), row)

    def forget_pace(self, target: str) -> None:
        """A target is no longer watched; what is known of it stays for when it comes back."""
        self._saved_s.pop(target, None)

    async def close(self) -> None:
        """Have the disk take what waits, and let the folder go."""
        if self._store is not None:
            await self._store.close()


def _saved_t(row: WatchRow) -> float:
    return row.saved_t


def _row(event: IncidentEvent) -> IncidentRow:
    incident = event.incident
    return IncidentRow(
        id=incident.id,
        target=incident.target,
        kind=incident.kind,
        opened_t=incident.opened_t,
        updated_t=event.t,
        resolved_t=incident.resolved_t,
        event=published(event),
    )


def _incident(row: IncidentRow) -> Incident | None:
    """None for an entry that does not say all that is shown of an incident."""
    try:
        return from_published(row.event, row.opened_t)
    except stored.DAMAGE:
        return None
