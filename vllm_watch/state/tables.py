"""The statements: what is written and read of incidents and watches. Runs in the worker thread only."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_watch.state.rows import IncidentRow, WatchRow

ENDED_PER_TARGET_MAX = 1000
ENDED_MAX = 20_000
"""Incidents that ended: so many are kept of one target, and of all together: some 2 KB each."""

ENDED_SECONDS_MAX = 30 * 86400.0
"""... and for so long: the month that a report looks back over."""

WATCH_SECONDS_MAX = 30 * 86400.0
"""What was learnt of a target that has not been seen for so long is removed."""


@dataclass(frozen=True, slots=True)
class Contents:
    """All that was kept. `damaged`: entries that could not be read, in words."""

    watches: tuple[WatchRow, ...] = ()
    incidents: tuple[IncidentRow, ...] = ()  # in the order of their last events
    damaged: tuple[str, ...] = field(default=())


def write(
    connection: sqlite3.Connection, incidents: Iterable[IncidentRow], watches: Iterable[WatchRow]
) -> None:
    """Write all in one transaction. Incidents are on the disk when this returns; of what was learnt
    the last minutes may be lost with the power."""
    told = list(incidents)
    connection.execute(f"PRAGMA synchronous = {'FULL' if told else 'NORMAL'}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_PUT_INCIDENT, (_incident_values(each) for each in told))
        connection.executemany(_PUT_WATCH, (_watch_values(each) for each in watches))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


_PUT_INCIDENT = """
    INSERT INTO incident (id, target, kind, opened_t, updated_t, resolved_t, event)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET updated_t = excluded.updated_t, resolved_t = excluded.resolved_t,
        event = excluded.event, opened_t = coalesce(incident.opened_t, excluded.opened_t)
"""
_PUT_WATCH = "INSERT OR REPLACE INTO watch (target, group_name, saved_t, state) VALUES (?, ?, ?, ?)"


def _incident_values(row: IncidentRow) -> tuple[Any, ...]:
    times = (row.opened_t, row.updated_t, row.resolved_t)
    return row.id, row.target, row.kind, *times, _json(row.event)


def _watch_values(row: WatchRow) -> tuple[Any, ...]:
    return row.target, row.group, row.saved_t, _json(row.state)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read(connection: sqlite3.Connection) -> Contents:
    """Read everything; an entry that is damaged is left out."""
    damaged: list[str] = []
    watches = []
    for target, group, saved_t, state in connection.execute(
        "SELECT target, group_name, saved_t, state FROM watch"
    ):
        found = _parsed(state, f"state of target {target}", damaged)
        if found is not None:
            watches.append(WatchRow(target=target, group=group, saved_t=saved_t, state=found))
    incidents = []
    for name, target, kind, opened_t, updated_t, resolved_t, event in connection.execute(
        "SELECT id, target, kind, opened_t, updated_t, resolved_t, event FROM incident"
        " ORDER BY updated_t"
    ):
        found = _parsed(event, f"incident {name}", damaged)
        if found is not None:
            row = IncidentRow(
                id=name, target=target, kind=kind, opened_t=opened_t, updated_t=updated_t,
                resolved_t=resolved_t, event=found,
            )  # fmt: skip
            incidents.append(row)
    return Contents(tuple(watches), tuple(incidents), tuple(damaged))


def _parsed(text: object, what: str, damaged: list[str]) -> dict[str, Any] | None:
    try:
        found = json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        damaged.append(f"{what}: {error}")
        return None
    if not isinstance(found, dict):
        damaged.append(f"{what}: it is no object")
        return None
    return found


def prune(connection: sqlite3.Connection, t: float) -> None:
    """Remove what is older or more than is kept, at Unix time `t`. Open incidents are never removed."""
    connection.execute(
        "DELETE FROM incident WHERE resolved_t IS NOT NULL AND resolved_t < ?",
        (t - ENDED_SECONDS_MAX,),
    )
    for part, kept_max in (("PARTITION BY target", ENDED_PER_TARGET_MAX), ("", ENDED_MAX)):
        connection.execute(_TOO_MANY.format(part=part), (kept_max,))
    connection.execute("DELETE FROM watch WHERE saved_t < ?", (t - WATCH_SECONDS_MAX,))


_TOO_MANY = """
    DELETE FROM incident WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER ({part} ORDER BY resolved_t DESC) AS number
            FROM incident WHERE resolved_t IS NOT NULL
        ) WHERE number > ?
    )
"""
