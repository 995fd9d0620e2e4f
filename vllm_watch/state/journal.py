"""The restart journal: every attempt, every wish of a person, and what holds until somebody ends it.

It shares the state file (state/) but nothing else: a connection and a thread of its own, and every write
is flushed to the disk before it returns (`synchronous = FULL`). Whatever cannot be written or read raises
JournalError, and the guard then refuses: without a journal nothing is restarted.
"""

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from vllm_watch.errors import JournalError, StateError
from vllm_watch.state import file, troubles
from vllm_watch.state.attempt import Attempt

_T = TypeVar("_T")

WRITE_SECONDS = 10.0
"""A disk that takes longer to flush one row is not one to rely on."""

CLOSE_SECONDS = 2.0
"""How long the end of the watcher may wait for the last write."""

KEPT_SECONDS = 400 * 86400.0
"""Attempts and wishes are kept for a year and a month: what an audit asks for."""

KEPT_MAX = 20_000
"""... and at most so many of each, of some 1 KB."""

LOST = "history_lost"
"""Standing entry: a damaged file was replaced, so nobody knows what was spent; a person must resume."""

_BEGUN = "begun"
"""Standing entry: since when this file is kept."""


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
        """Write and read; a trouble is kept in `trouble` and mended by a later write that succeeds."""
        await self.probe()

    async def probe(self) -> None:
        """Write what is there already, for nothing but to learn whether the disk takes it. Never raises."""
        with contextlib.suppress(JournalError):
            await self._do(
                lambda db: _write(db, "UPDATE standing SET said = said WHERE name = ?", (_BEGUN,))
            )

    async def close(self) -> None:
        """Finish what is under way, within a moment; by the thread itself, which may be in the midst of it."""
        with contextlib.suppress(RuntimeError, TimeoutError):  # closed before; a disk that hangs
            future = asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
            self._thread.shutdown(wait=False)
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(future)

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def write(self, attempt: Attempt) -> None:
        """Insert the attempt, or replace what is known of its id."""
        row = (
            attempt.id, attempt.target, attempt.group, attempt.state, attempt.began_t, _json(asdict(attempt)),
        )  # fmt: skip
        await self._do(
            lambda db: _write(db, "INSERT OR REPLACE INTO attempt VALUES (?, ?, ?, ?, ?, ?)", row)
        )

    async def note(self, entry: Entry) -> None:
        """Write down what somebody wanted."""
        row = (entry.t, _json(asdict(entry)))
        await self._do(lambda db: _write(db, "INSERT INTO audit (t, said) VALUES (?, ?)", row))

    async def set(self, name: str, said: Mapping[str, Any] | None) -> None:
        """Have this hold from now on; None ends it."""
        if said is None:
            await self._do(lambda db: _write(db, "DELETE FROM standing WHERE name = ?", (name,)))
        else:
            row = (name, _json(said))
            await self._do(
                lambda db: _write(db, "INSERT OR REPLACE INTO standing VALUES (?, ?)", row)
            )

    async def standing(self) -> dict[str, dict[str, Any]]:
        """All that holds, by name."""
        select = "SELECT name, said FROM standing ORDER BY rowid"
        rows = await self._do(lambda db: db.execute(select).fetchall(), writes=False)
        with self._reading():
            return {name: dict(json.loads(said)) for name, said in rows}

    async def attempts(self, group: str | None = None, since_t: float = 0.0) -> tuple[Attempt, ...]:
        """The attempts that began since then, of one group or of all, oldest first."""
        where, values = "began_t >= ?", [since_t]
        if group is not None:
            where, values = where + " AND group_name = ?", [since_t, group]  # type: ignore[list-item]
        # S608: `where` is one of the two texts above
        select = f"SELECT said FROM attempt WHERE {where} ORDER BY began_t, rowid"  # noqa: S608
        rows = await self._do(lambda db: db.execute(select, values).fetchall(), writes=False)
        with self._reading():
            return tuple(Attempt(**json.loads(said)) for (said,) in rows)

    async def entries(self, since_t: float = 0.0, limit: int = 1000) -> tuple[Entry, ...]:
        """The last wishes since then, oldest first."""
        select = "SELECT said FROM audit WHERE t >= ? ORDER BY number DESC LIMIT ?"
        values = (since_t, limit)
        rows = await self._do(lambda db: db.execute(select, values).fetchall(), writes=False)
        with self._reading():
            return tuple(Entry(**json.loads(said)) for (said,) in reversed(rows))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """An entry that is not ours makes what was spent unknown."""
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            cause = f"an entry in {self._folder / file.NAME} cannot be read: {error}"
            remedy = "It was changed by something else, or written by a newer version: move the file away"
            raise JournalError(cause, remedy) from error

    async def _do(self, work: Callable[[sqlite3.Connection], _T], *, writes: bool = True) -> _T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)
            # Shielded: a write that was begun is not half done, only not waited for.
            # Not wait_for: up to Python 3.11 it loses a cancellation that comes with the result.
            async with asyncio.timeout(WRITE_SECONDS):
                done = await asyncio.shield(future)
        except TimeoutError:
            self.trouble = f"{self._folder} did not take a write within {WRITE_SECONDS:.0f} s"
            raise JournalError(self.trouble, "Look at that disk") from None
        except (StateError, OSError, sqlite3.Error, ValueError, TypeError, RuntimeError) as error:
            trouble = troubles.of(error, self._folder)
            self.trouble = trouble.cause
            raise JournalError(trouble.cause, trouble.remedy) from error
        if writes:  # a disk that is full, or read-only, is still read
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
            self._begin(self._connection)
        return self._connection

    def _begin(self, db: sqlite3.Connection) -> None:
        """A file that took the place of a damaged one knows nothing of what was spent."""
        damaged = sorted(self._folder.glob(f"{file.NAME}.damaged-*"))
        (known,) = db.execute("SELECT count(*) FROM standing WHERE name = ?", (_BEGUN,)).fetchone()
        if not known:
            if damaged:
                said = _json({"t": time.time(), "file": str(damaged[-1])})
                _write(db, "INSERT OR REPLACE INTO standing VALUES (?, ?)", (LOST, said))
            said = _json({"t": time.time()})
            _write(db, "INSERT INTO standing VALUES (?, ?)", (_BEGUN, said))
        oldest_t = time.time() - KEPT_SECONDS
        for table, t in (("attempt", "began_t"), ("audit", "t")):
            # S608: names of our own tables
            _write(db, f"DELETE FROM {table} WHERE {t} < ?", (oldest_t,))  # noqa: S608
            _write(
                db,
                f"DELETE FROM {table} WHERE rowid NOT IN"  # noqa: S608
                f" (SELECT rowid FROM {table} ORDER BY {t} DESC LIMIT ?)",
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
