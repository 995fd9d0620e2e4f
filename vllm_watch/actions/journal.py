"""The journal: who wanted what changed, and what came of it, on the disk before it is done.

It shares the state file (store/) but nothing else: a connection and a thread of its own, and every write
is flushed to the disk before it returns (`synchronous = FULL`). Whatever cannot be written or read raises
JournalError, and whoever wanted to act then does not.
"""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from vllm_watch.errors import JournalError, StateError
from vllm_watch.store import file, troubles

_T = TypeVar("_T")

WRITE_SECONDS = 10.0
"""A disk that takes longer to flush one row is not one to rely on."""

KEPT_SECONDS = 400 * 86400.0
"""Entries are kept for a year and a month: what an audit asks for."""

KEPT_MAX = 20_000
"""... and at most so many, of some 1 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that somebody wanted or changed, and what came of it."""

    t: float  # Unix seconds
    actor: str
    source: str  # address, "cli", "schedule", "alertmanager" or "watcher"
    action: (
        str  # "restart", "approve", "silence", "pause", "resume", "decision", "reload", "reclaim_…"
    )
    target: str = ""
    reason: str = ""
    before: str = ""
    after: str = ""


class Journal:
    """One state folder's journal. Open it after the store, which makes the folder and holds its lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.trouble: str | None = "it was not opened yet"  # why nothing can be written, in words

    async def open(self) -> None:
        """Read what is there; a trouble is kept in `trouble` and mended by a later call that succeeds."""
        try:
            await self.entries(limit=1)
        except JournalError:
            return

    async def close(self) -> None:
        """Finish what is under way, within a moment."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def note(self, entry: Entry) -> None:
        """Write down what somebody wanted."""
        row = (entry.t, _json(asdict(entry)))
        await self._do(lambda db: _write(db, "INSERT INTO audit (t, said) VALUES (?, ?)", row))

    async def entries(self, since_t: float = 0.0, limit: int = 1000) -> tuple[Entry, ...]:
        """The last wishes since then, oldest first."""
        select = "SELECT said FROM audit WHERE t >= ? ORDER BY number DESC LIMIT ?"
        rows = await self._do(lambda db: db.execute(select, (since_t, limit)).fetchall())
        return tuple(Entry(**json.loads(said)) for (said,) in reversed(rows))

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)
            # Shielded: a write that was begun is not half done, only not waited for.
            done = await asyncio.wait_for(asyncio.shield(future), WRITE_SECONDS)
        except TimeoutError:
            self.trouble = f"{self._folder} did not take a write within {WRITE_SECONDS:.0f} s"
            raise JournalError(self.trouble, "Look at that disk") from None
        except (StateError, OSError, sqlite3.Error, ValueError, TypeError, RuntimeError) as error:
            trouble = troubles.of(error, self._folder)
            self.trouble = trouble.cause
            raise JournalError(trouble.cause, trouble.remedy) from error
        self.trouble = None
        return done

    # --- in the thread

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return work(self._connected())
        except sqlite3.Error:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()  # a failed write leaves nothing half done behind
            raise

    def _connected(self) -> sqlite3.Connection:
        path = self._folder / file.NAME
        if self._connection is not None and _inode(path) != self._inode:
            self._connection.close()  # the store has moved a damaged file aside
            self._connection = None
        if self._connection is None:
            self._connection = file.connect(self._folder)
            self._connection.execute("PRAGMA synchronous = FULL")
            self._inode = _inode(path)
            _prune(self._connection)
        return self._connection


def _prune(db: sqlite3.Connection) -> None:
    _write(db, "DELETE FROM audit WHERE t < ?", (time.time() - KEPT_SECONDS,))
    _write(
        db,
        "DELETE FROM audit WHERE rowid NOT IN (SELECT rowid FROM audit ORDER BY t DESC LIMIT ?)",
        (KEPT_MAX,),
    )


def _write(db: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> None:
    """One statement, one transaction, on the disk when this returns."""
    db.execute(statement, values)


def _json(said: Mapping[str, Any]) -> str:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
