"""Who was told what, and what still waits: kept in memory, and on the disk for the next run of the watcher.

Memory is what holds; the disk follows. A disk that is full or gone costs no message: what it has not taken
is written when it can be. It shares the state file (state/) but nothing else.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import structlog

from vllm_watch.errors import StateError
from vllm_watch.notify import matter as matters
from vllm_watch.notify.batches import HOUR_SECONDS, Waiting
from vllm_watch.notify.matter import RESTART, Matter
from vllm_watch.notify.policy import RESOLVED, Told
from vllm_watch.state import file, troubles

_log = structlog.get_logger()
_T = TypeVar("_T")

WRITE_SECONDS = 5.0
"""A flush takes milliseconds; a message waits no longer for a disk that hangs."""

CLOSE_SECONDS = 2.0

KEPT_SECONDS = 86400.0
"""What was told is remembered for so long after its matter is over; a step of a restart is news for an hour."""

KEPT_MAX = 5000
"""Rows of all notifiers together, of some 1 KB; the oldest that are over go first."""

DROPPED = "dropped"
"""Stands for the key of a message; behind it the key of the one that said how many were dropped."""

Key = tuple[str, str, str]  # notifier, matter's id, name of the phase


@dataclass(frozen=True, slots=True)
class Row:
    """One phase of one matter, for one notifier."""

    notifier: str
    name: str  # of the phase
    t: float
    matter: Matter
    told_t: float | None = None
    message: str | None = (
        None  # key of the message that it is in; it waits still while told_t is None
    )

    @property
    def key(self) -> Key:
        return self.notifier, self.matter.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)


class Ledger:
    """All rows. `folder` None: they end with the process. Nothing raises."""

    def __init__(self, folder: Path | None, is_ours: Callable[[], bool] = lambda: True) -> None:
        """`is_ours`: is the state folder held for this process? Else nothing is written or read."""
        self._folder = folder
        self._is_ours = is_ours
        self._rows: dict[str, dict[str, dict[str, Row]]] = {}  # notifier → matter → phase's name
        self._dirty: dict[Key, Row | None] = {}  # what the disk has not taken; None: it goes
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="notices")
        self._failing: str | None = None
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Read what was kept."""
        rows = await self._do(self._read)
        for row in rows or ():
            self._rows.setdefault(row.notifier, {}).setdefault(row.matter.id, {})[row.name] = row

    async def close(self) -> None:
        """Write what is owed, within a moment."""
        await self.flush()
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._let_go)
        self._thread.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(future)

    # --- asked

    def known(self, notifier: str, matter: str) -> list[Told]:
        """What this notifier was or is to be told of a matter, oldest first."""
        rows = self._rows.get(notifier, {}).get(matter, {}).values()
        return [Told(each.phase, each.matter.severity, each.told_t, each.dropped) for each in rows]

    def lasting(self, notifier: str) -> list[Matter]:
        """Matters that this notifier knows as open, as they were last told."""
        found = []
        for rows in self._rows.get(notifier, {}).values():
            last = next(reversed(rows.values()))
            if last.matter.about != RESTART and RESOLVED not in rows:
                found.append(last.matter)
        return found

    def waiting(self, notifier: str) -> list[Row]:
        """What waits to be told, oldest first."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        return sorted((each for each in rows if each.told_t is None), key=lambda each: each.t)

    def sent_t(self, notifier: str, now_t: float) -> list[float]:
        """Times of the messages of the last hour."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        recent = {
            each.message: each.told_t for each in rows
            if each.message is not None and not each.dropped and each.told_t is not None
            and each.told_t > now_t - HOUR_SECONDS
        }  # fmt: skip
        return sorted(recent.values())

    def dropped(self, notifier: str) -> list[Row]:
        """What could not be told, and of which no message has said so yet."""
        rows = (r for of in self._rows.get(notifier, {}).values() for r in of.values())
        return [each for each in rows if each.message == DROPPED]

    # --- changed

    def add(self, notifier: str, phase: str, matter: Matter, t: float) -> None:
        """This phase of this matter waits to be told."""
        rows = self._rows.setdefault(notifier, {}).setdefault(matter.id, {})
        before = sum(each.phase == phase for each in rows.values())
        name = phase if not before else f"{phase} {before + 1}"
        self._put([Row(notifier, name, t, matter)])

    def renew(self, notifier: str, matter: Matter) -> None:
        """What waits of this matter is told as it now stands; what is in a message that was begun is not."""
        rows = self._rows.get(notifier, {}).get(matter.id, {})
        for each in list(rows.values()):
            free = each.told_t is None and each.message is None
            if free and each.matter != matter:
                rows[each.name] = replace(each, matter=matter)  # the disk need not know each word

    def bind(self, rows: Iterable[Row], message: str | None) -> None:
        """These are in this message, which is begun now (None: it surely was not sent)."""
        self._put(replace(each, message=message) for each in rows)

    def told(self, rows: Iterable[Row], dropped: Iterable[Row], message: str, t: float) -> None:
        """This message was taken; it has said how many were dropped."""
        self._put(replace(each, message=message, told_t=t) for each in rows)
        self._put(replace(each, message=f"{DROPPED} {message}") for each in dropped)

    def drop(self, rows: Iterable[Row], t: float) -> None:
        """These are not told any more."""
        self._put(replace(each, message=DROPPED, told_t=t) for each in rows)

    def withdraw(self, notifier: str, matter: str) -> None:
        """What waits of this matter is not to be told; what is in a message that was begun is."""
        rows = self._rows.get(notifier, {}).get(matter, {})
        for each in [r for r in rows.values() if r.told_t is None and r.message is None]:
            del rows[each.name]
            self._dirty[each.key] = None
        if not rows:
            self._rows.get(notifier, {}).pop(matter, None)

    def _put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._rows.setdefault(row.notifier, {}).setdefault(row.matter.id, {})[row.name] = row
            self._dirty[row.key] = row

    def prune(self, open_ids: Iterable[str], notifiers: Collection[str], now_t: float) -> None:
        """Forget what is over and long ago; what waits for one of these notifiers, and what is open, never."""
        here = set(open_ids)
        over: list[tuple[float, str, str]] = []
        count = 0
        for notifier, of in self._rows.items():
            for name, rows in of.items():
                count += len(rows)
                times = [each.told_t for each in rows.values()]
                if notifier not in notifiers:  # it is configured no more
                    over.append((max(each.t for each in rows.values()), notifier, name))
                elif name not in here and None not in times:
                    over.append((max(t for t in times if t is not None), notifier, name))
        over.sort()
        for t, notifier, name in over:
            if count <= KEPT_MAX and now_t - t < KEPT_SECONDS:
                break
            rows = self._rows[notifier].pop(name)
            count -= len(rows)
            self._dirty.update((each.key, None) for each in rows.values())

    # --- the disk

    async def flush(self) -> None:
        """Have the disk take what it lacks; what it does not take stays owed."""
        async with self._writing:
            dirty, self._dirty = self._dirty, {}
            if self._folder is None or not dirty:
                return
            if await self._do(lambda db: _write(db, dirty)) is None:
                self._dirty = {**dirty, **self._dirty}

    async def _do(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        if self._folder is None or not self._is_ours():
            return None
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)
            async with asyncio.timeout(WRITE_SECONDS):
                done = await asyncio.shield(future)
        except (TimeoutError, StateError, OSError, sqlite3.Error, RuntimeError) as error:
            self._failed(error)
            return None
        if self._failing is not None:
            _log.info("notices_kept_again", folder=str(self._folder))
        self._failing = None
        return done

    def _failed(self, error: BaseException) -> None:
        assert self._folder is not None  # noqa: S101 - there is a disk to fail
        trouble = troubles.of(error, self._folder)
        if trouble.cause != self._failing:
            because = "after a restart of vllm-watch something may be told twice"
            _log.error("notices_not_kept", **trouble._asdict(), means=because)
        self._failing = trouble.cause

    # --- in the thread

    def _run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return work(self._connected())
        except sqlite3.Error:
            self._let_go()
            raise

    def _connected(self) -> sqlite3.Connection:
        assert self._folder is not None  # noqa: S101 - asked before
        path = self._folder / file.NAME
        moved = self._connection is not None and _inode(path) != self._inode
        if moved:  # the store has moved a damaged file aside
            self._let_go()
        if self._connection is None:
            self._connection = file.connect(self._folder)
            self._connection.execute("PRAGMA synchronous = FULL")
            self._inode = _inode(path)
        if moved:
            _write(self._connection, {r.key: r for r in self._all()})
        return self._connection

    def _all(self) -> Sequence[Row]:
        copies = [list(of.values()) for of in list(self._rows.values())]
        return [row for of in copies for rows in of for row in list(rows.values())]

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @staticmethod
    def _read(db: sqlite3.Connection) -> list[Row]:
        found = []
        for notifier, name, t, told_t, message, said in db.execute(
            "SELECT notifier, phase, t, told_t, message, said FROM notice ORDER BY rowid"
        ):
            try:
                matter = matters.from_state(json.loads(said))
            except (ValueError, TypeError, KeyError) as error:
                _log.warning("notice_lost", notifier=notifier, phase=name, because=str(error))
                continue
            found.append(Row(notifier, name, t, matter, told_t, message))
        return found


def _write(db: sqlite3.Connection, dirty: "dict[Key, Row] | dict[Key, Row | None]") -> bool:
    """All in one transaction, on the disk when this returns."""
    db.execute("BEGIN IMMEDIATE")
    try:
        for key, row in dirty.items():
            if row is None:
                db.execute(_DELETE, key)
            else:
                db.execute(_PUT, (*key, row.t, row.told_t, row.message, _json(row.matter)))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return True


_DELETE = "DELETE FROM notice WHERE notifier = ? AND matter = ? AND phase = ?"
_PUT = """
    INSERT INTO notice (notifier, matter, phase, t, told_t, message, said) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (notifier, matter, phase) DO UPDATE SET told_t = excluded.told_t,
        message = excluded.message, said = excluded.said
"""


def _json(matter: Matter) -> str:
    return json.dumps(matters.to_state(matter), separators=(",", ":"), ensure_ascii=False)


def waiting_of(rows: Iterable[Row]) -> list[Waiting]:
    """Return rows as `batches` takes them."""
    return [
        Waiting(phase=each.phase, name=each.name, t=each.t, matter=each.matter) for each in rows
    ]


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
