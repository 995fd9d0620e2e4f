"""What charts showed, by target and part: in a file of its own, whose damage costs nothing else.

It is the same kind of file as the state folder's own, in a folder below that, with a worker of its own: so it is locked,
checked, and moved aside when it is damaged, and a disk that is slow for it delays no incident.
"""

import sqlite3
import time
import zlib
from dataclasses import dataclass
from functools import partial

from vllm_watch.errors import StateError
from vllm_watch.state.troubles import Trouble
from vllm_watch.state.worker import Worker

FOLDER = "history"

OPEN_SECONDS = 7.0
"""How long the start waits for it: a watcher that is being replaced needs up to five to let the folder go."""

KEPT_SECONDS = 86400.0
UPTIME, UPTIME_KEPT_SECONDS = "uptime", 31 * 86400.0
"""The one part that reaches back further."""

ROWS_MAX = 2000
"""Of 13 KB each at most: the file has some 26 MB at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """One engine's rings or a target's day, as bytes of a `form` that who reads them knows."""

    target: str
    name: str
    form: str
    data: bytes


class ChartTable:
    """The table `chart`."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        worker.tables.append(self)

    async def open(self) -> tuple[Part, ...]:
        """Return what an earlier run has kept; nothing where it cannot be had in time, which the worker tells."""
        try:
            return await self.worker.do(self._read, seconds=OPEN_SECONDS, writes=False)
        except StateError:
            return ()

    def put(self, part: Part) -> None:
        """Have it written soon, in the place of what was kept of it."""
        key = (part.target, part.name)
        self.worker.put(key, partial(_write, part, time.time()), learnt=True)

    def damaged(self, part: Part, why: str) -> None:
        """Tell that a part cannot be used."""
        cause = f"kept history is damaged: {part.name} of {part.target}: {why}"
        self.worker.report(Trouble("entry", cause, "It is left out: the chart has a gap."))

    # --- in the worker's thread

    def begin(self, db: sqlite3.Connection) -> None:
        """The file may be new. No step of the schema: the state folder's own file has no such table."""
        db.execute(
            "CREATE TABLE IF NOT EXISTS chart (target TEXT NOT NULL, name TEXT NOT NULL, saved_t REAL NOT NULL,"
            " form TEXT NOT NULL, sum INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (target, name))"
        )

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        """No chart reaches back further than a day, an uptime than a month."""
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
                self.damaged(part, "it is not what was written")
        return tuple(found)


def _write(part: Part, t: float, db: sqlite3.Connection) -> None:
    row = (part.target, part.name, t, part.form, zlib.crc32(part.data), part.data)
    db.execute("INSERT OR REPLACE INTO chart VALUES (?, ?, ?, ?, ?, ?)", row)
