"""Store charts by target and part.

They have their own file, so that damage or a slow disk affects nothing else.
"""

import sqlite3
import time
import zlib
from dataclasses import dataclass
from functools import partial

from vllm_watch.errors import StateError
from vllm_watch.state.worker import Worker

FOLDER = "history"

OPEN_SECONDS = 7.0
"""The start waits at most this long for the charts. This must exceed file.HELD_SECONDS."""

KEPT_SECONDS = 86400.0
UPTIME, UPTIME_KEPT_SECONDS = "uptime", 31 * 86400.0

ROWS_MAX = 2000
"""At most this many rows are kept. A row has at most 13 KB, so the file stays below 26 MB."""


@dataclass(frozen=True, slots=True)
class Part:
    """The chart buffers of one engine, or the last day of one target, in format `form`."""

    target: str
    name: str
    form: str
    data: bytes


class ChartTable:
    """Table `chart`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        worker.tables.append(self)

    async def open(self) -> tuple[Part, ...]:
        """Return the stored parts, or nothing after a timeout."""
        try:
            return await self.worker.do(self._read, seconds=OPEN_SECONDS, writes=False)
        except StateError:
            return ()

    def put(self, part: Part) -> None:
        key = (part.target, part.name)
        self.worker.put(key, partial(_write, part, time.time()), learnt=True)

    def damaged(self, part: Part, why: str) -> None:
        cause = f"stored history is damaged: {part.name} of {part.target}: {why}"
        self.worker.report(StateError(cause, "It is left out: the chart has a gap.", "entry"))

    def begin(self, db: sqlite3.Connection) -> None:
        """Create the table here, because migrations in schema.py are for the main file only."""
        db.execute(
            "CREATE TABLE IF NOT EXISTS chart (target TEXT NOT NULL, name TEXT NOT NULL, saved_t REAL NOT NULL,"
            " form TEXT NOT NULL, sum INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (target, name))"
        )

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        db.execute(
            "DELETE FROM chart WHERE saved_t < CASE name WHEN ? THEN ? ELSE ? END",
            (UPTIME, t - UPTIME_KEPT_SECONDS, t - KEPT_SECONDS),
        )
        db.execute(
            "DELETE FROM chart WHERE rowid NOT IN (SELECT rowid FROM chart ORDER BY saved_t DESC LIMIT ?)",
            (ROWS_MAX,),
        )

    def _read(self, db: sqlite3.Connection) -> tuple[Part, ...]:
        found = []
        newest = "SELECT target, name, form, sum, data FROM chart ORDER BY saved_t DESC LIMIT ?"
        for target, name, form, checksum, data in db.execute(newest, (ROWS_MAX,)):
            part = Part(target, name, form, data)
            if isinstance(data, bytes) and zlib.crc32(data) == checksum:
                found.append(part)
            else:
                self.damaged(part, "its checksum is wrong")
        return tuple(found)


def _write(part: Part, t: float, db: sqlite3.Connection) -> None:
    row = (part.target, part.name, t, part.form, zlib.crc32(part.data), part.data)
    db.execute("INSERT OR REPLACE INTO chart VALUES (?, ?, ?, ?, ?, ?)", row)
