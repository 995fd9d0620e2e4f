"""What the daemon remembers: which kept state belongs to which target, and when it is kept again.

With a state folder it outlives the process; without one it still hands a target's state over when a
reload changes how the target is watched.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from vllm_watch.export.board import Board
from vllm_watch.export.incidents import RESOLVED_MAX
from vllm_watch.export.store_health import StoreHealth
from vllm_watch.incidents.incident import to_event
from vllm_watch.samples.target import Target
from vllm_watch.state.rows import IncidentRow, WatchRow, ended
from vllm_watch.state.store import Store
from vllm_watch.state.troubles import Trouble
from vllm_watch.watch.watch import Watch

_log = structlog.get_logger()

SAVE_SECONDS = 60.0
"""What was learnt is kept this often: a minute's learning is learnt again in a minute."""

ORPHAN_SECONDS = 120.0
"""A target that has not come back so long after the start is gone, and its incidents with it: discovery
asks every few seconds, and some sources answer late."""

STATES_MAX = 10_000
"""As many as there may be targets."""

Event = Mapping[str, Any]


class Memory:
    """One process's memory of its targets."""

    def __init__(self, state_dir: Path | None, board: Board) -> None:
        self._board = board
        self._states: dict[str, WatchRow] = {}  # the newest that is known, by target
        self._open: dict[str, IncidentRow] = {}  # read as open, and not taken up yet
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
        whole = [row for row in contents.incidents if _is_whole(row)]
        self._open = {row.id: row for row in whole if row.resolved_t is None}
        past = [row for row in whole if row.resolved_t is not None]
        self._board.incidents.restore((row.event, row.opened_t) for row in past[-RESOLVED_MAX:])

    def recall(self, watch: Watch, target: Target) -> None:
        """Give a Watch that has seen nothing yet what is known of its target, or of its group."""
        row, now, watch.address = self._states.get(target.name), time.time(), target.url
        if row is not None:
            lost = watch.restore(row.state, now)
        else:
            kin = [each for each in self._states.values() if each.group == target.group]
            lost = watch.inherit(max(kin, key=_saved_t).state) if kin else []
        for part in lost:
            cause = f"what was kept of {target.name} cannot be used: {part}"
            remedy = "It is left out, and learnt anew."
            _log.warning("state_entry_lost", target=target.name, cause=cause, remedy=remedy)
            if self._board.store is not None:
                self._board.store.count("entry", cause, now)
        if row is not None:
            away = max(0.0, now - row.saved_t)
            _log.info(
                "target_remembered", target=target.name, incidents=len(watch.incidents),
                away_seconds=round(away),
            )  # fmt: skip

    def show(self, watch: Watch) -> None:
        """Show what a Watch took up, once its target is on the board, and end what nobody follows any more."""
        events = []
        for incident in watch.incidents:
            row = self._open.pop(incident.id, None)
            events.append(to_event(incident, "opened", incident.opened_t))
            if row is not None and row.updated_t > incident.opened_t:
                events.append(to_event(incident, "updated", row.updated_t))
        self._board.restore_incidents(watch.target, events, watch.opened)
        lost = [row for row in self._open.values() if row.target == watch.target]
        self._end(lost, "superseded")

    def end_orphans(self, targets: Iterable[str]) -> None:
        """End the incidents of targets that are watched no more, when they had time to come back."""
        if self._open and time.monotonic() - self._opened_s >= ORPHAN_SECONDS:
            here = set(targets)
            self._end([row for row in self._open.values() if row.target not in here], "target_gone")

    def _end(self, rows: Sequence[IncidentRow], resolution: str) -> None:
        over = [ended(row, time.time(), resolution) for row in rows]
        for row in over:
            self._open.pop(row.id, None)
        self._board.incidents.restore((row.event, row.opened_t) for row in over)
        for row in over:
            self._board.on_event(row.event)
        if self._store is not None and over:
            self._store.put(over)

    async def keep(self, watch: Watch, group: str, events: Sequence[Event]) -> None:
        """Keep a target's incident events at once, and what it has learnt now and then."""
        if self._store is None:
            return
        saved_s = self._saved_s.setdefault(watch.target, time.monotonic())
        if events or time.monotonic() - saved_s >= SAVE_SECONDS:
            self.save(watch, group, events)
        if events:
            await self._store.written()

    def save(self, watch: Watch, group: str, events: Sequence[Event] = ()) -> None:
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


def _row(event: Event) -> IncidentRow:
    name, t = event["event"], event["t"]
    return IncidentRow(
        id=event["id"],
        target=event["target"],
        kind=event["kind"],
        opened_t=t if name == "opened" else None,
        updated_t=t,
        resolved_t=t if name == "resolved" else None,
        event=event,
    )


def _is_whole(row: IncidentRow) -> bool:
    """Does it say all that is shown of an incident?"""
    texts = ("id", "target", "kind", "cause", "severity", "summary", "event")
    event = row.event
    return (
        all(isinstance(event.get(name), str) for name in texts)
        and isinstance(event.get("t"), int | float)
        and isinstance(event.get("engine"), str | None)
        and isinstance(event.get("restart_advised"), bool)
        and isinstance(event.get("evidence", {}), dict)
        and isinstance(event.get("related", []), list)
    )
