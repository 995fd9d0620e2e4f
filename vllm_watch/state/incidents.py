"""Store incidents and detectors' learnt state. They are read at the start and written when they
change."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vllm_watch.errors import StateError
from vllm_watch.incidents import way
from vllm_watch.incidents.incident import (
    RESOLVED,
    UPDATED,
    Incident,
    IncidentEvent,
    ended,
    from_published,
    published,
)
from vllm_watch.samples.target import WATCHER
from vllm_watch.signals import stored
from vllm_watch.state.schema import packed, unpacked
from vllm_watch.state.worker import Worker

OPEN_SECONDS = 10.0
"""The start waits at most this long for the stored state. Connecting may take
file.HELD_SECONDS, and reading 20,000 incidents takes a second."""

ENDED_PER_TARGET_MAX = 1000
ENDED_MAX = 20_000
"""At most this many ended incidents are kept, 2 KB each."""

ENDED_SECONDS_MAX = 30 * 86400.0

LEARNT_SECONDS_MAX = 30 * 86400.0
"""A target's learnt state is removed if it was not updated for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """Exported state of one target, of a host or of the fleet."""

    target: str
    group: str
    saved_t: float
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The stored state."""

    open: tuple[Incident, ...] = ()
    ended: tuple[Incident, ...] = ()  # the latest ones, in order of their end
    learnt: tuple[Learnt, ...] = ()


class IncidentTable:
    """Tables `incident` and `watch`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._open: dict[str, IncidentEvent] = {}  # id → last event of an open incident
        worker.tables.append(self)

    async def open(self, ended_max: int) -> Contents:
        """Return the stored state, or empty contents if it cannot be read in time."""
        read = partial(self._read, ended_max)
        try:
            found = await self._worker.do(read, seconds=OPEN_SECONDS, writes=False)
        except StateError:
            # If the file becomes readable later, first end the open incidents in it, which are not resumed.
            self._worker.put("strangers", self._end_leftovers)
            return Contents()
        self._open = {each.id: IncidentEvent(UPDATED, each.updated_t, each) for each in found.open}
        return found

    def put(self, events: Sequence[IncidentEvent] = (), learnt: Learnt | None = None) -> None:
        if learnt is not None:
            # Write an incident and its state together, because the next start ends an incident without state.
            can_wait = learnt.target != WATCHER and not events
            self._worker.put(
                ("learnt", learnt.target), partial(_write_learnt, learnt), learnt=can_wait
            )
        for event in events:
            self._open.pop(event.incident.id, None)
            if event.incident.open:
                self._open[event.incident.id] = event
            self._put(event)

    def _put(self, event: IncidentEvent) -> None:
        self._worker.put(("incident", event.incident.id), partial(_write_incident, event))

    def begin(self, _: sqlite3.Connection) -> None:
        for event in list(self._open.values()):
            self._put(event)

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        db.execute(
            "DELETE FROM incident WHERE resolved_t IS NOT NULL AND resolved_t < ?",
            (t - ENDED_SECONDS_MAX,),
        )
        for part, kept_max in (("PARTITION BY target", ENDED_PER_TARGET_MAX), ("", ENDED_MAX)):
            db.execute(_TOO_MANY.format(part=part), (kept_max,))
        db.execute("DELETE FROM watch WHERE saved_t < ?", (t - LEARNT_SECONDS_MAX,))

    def _read(self, ended_max: int, db: sqlite3.Connection) -> Contents:
        learnt = []
        for target, group, saved_t, state in db.execute(
            "SELECT target, group_name, saved_t, state FROM watch"
        ):
            try:
                found = unpacked(state)
            except stored.DAMAGE as error:
                self._damaged(f"state of target {target}", error)
                continue
            learnt.append(Learnt(target=target, group=group, saved_t=saved_t, state=found))
        last = db.execute(_ENDED, (ended_max,)).fetchall()
        return Contents(
            open=tuple(self._parsed(db.execute(_OPEN))),
            ended=tuple(self._parsed(reversed(last))),
            learnt=tuple(learnt),
        )

    def _parsed(self, rows: Iterable[tuple[str, float | None, str]]) -> Iterator[Incident]:
        for name, opened_t, event in rows:
            try:
                yield from_published(unpacked(event), opened_t)
            except stored.DAMAGE as error:
                self._damaged(f"incident {name}", error)

    def _damaged(self, what: str, error: Exception) -> None:
        cause = f"a stored entry is damaged: {what}: {error!r}"
        self._worker.report(StateError(cause, "It is left out; the rest is used.", "entry"))

    def _end_leftovers(self, db: sqlite3.Connection) -> None:
        now = time.time()
        for incident in self._parsed(db.execute(_OPEN).fetchall()):
            over = ended(incident, now, "superseded")
            _write_incident(IncidentEvent(RESOLVED, now, over), db)


def _write_incident(event: IncidentEvent, db: sqlite3.Connection) -> None:
    incident = event.incident
    times = (incident.opened_t, event.t, incident.resolved_t)
    kept = published(event) | {"way": way.plain(incident.way)}
    row = (incident.id, incident.target, incident.kind, *times, packed(kept))
    db.execute(_PUT_INCIDENT, row)


def _write_learnt(learnt: Learnt, db: sqlite3.Connection) -> None:
    row: tuple[Any, ...] = (learnt.target, learnt.group, learnt.saved_t, packed(learnt.state))
    db.execute(
        "INSERT OR REPLACE INTO watch (target, group_name, saved_t, state) VALUES (?, ?, ?, ?)", row
    )


_PUT_INCIDENT = """
    INSERT INTO incident (id, target, kind, opened_t, updated_t, resolved_t, event)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET updated_t = excluded.updated_t, resolved_t = excluded.resolved_t,
        event = excluded.event, opened_t = coalesce(incident.opened_t, excluded.opened_t)
"""
_OPEN = "SELECT id, opened_t, event FROM incident WHERE resolved_t IS NULL ORDER BY updated_t"
_ENDED = """
    SELECT id, opened_t, event FROM incident WHERE resolved_t IS NOT NULL ORDER BY updated_t DESC LIMIT ?
"""
_TOO_MANY = """
    DELETE FROM incident WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER ({part} ORDER BY resolved_t DESC) AS number
            FROM incident WHERE resolved_t IS NOT NULL
        ) WHERE number > ?
    )
"""
