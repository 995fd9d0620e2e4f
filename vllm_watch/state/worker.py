"""The state folder's one worker: one thread, one connection, one queue; what was asked for first is on disk first.

There are two ways in. `put` returns at once: its row waits, and is tried again, until the disk has it. `do` waits for an
answer, and raises where the disk does not take it. All rows that were put are on disk before anything that `do` writes:
so nothing is done, and nobody is told, for an incident that a kill -9 would lose.

The event loop waits for no disk without bound, and a thread that hangs in one does not keep the process from ending.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from vllm_watch.errors import StateError
from vllm_watch.state import troubles
from vllm_watch.state.connection import Connection
from vllm_watch.state.troubles import Trouble

_log = structlog.get_logger()
_T = TypeVar("_T")

RETRY_SECONDS = 10.0
"""After a failure: until rows that wait are tried again, unless something that is asked for tries them sooner."""

CLOSE_SECONDS = 3.0
"""How long stopping may wait for the last write."""

PRUNE_SECONDS = 3600.0

ROWS_MAX, LEARNT_MAX = 5000, 10_000
"""Rows that wait for a disk, each of some KB; beyond it the oldest is forgotten."""

Work = Callable[[sqlite3.Connection], object]
Tell = Callable[[str | None, str | None, float], None]
"""One of troubles.REASONS and the cause, or None and None: it was written; and Unix time."""


class Table(Protocol):
    """What one part of the watcher keeps in the file. Its methods are called in the worker's thread."""

    def begin(self, db: sqlite3.Connection) -> None:
        """A connection was made, perhaps to a new file in the place of a damaged one."""

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        """Remove what is older or more than is kept, at Unix time `t`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    writes: bool
    done: "Future[Any]" = field(default_factory=Future)


class Worker:
    """One folder's. `tables` are told of each new connection."""

    def __init__(self, folder: Path | None, tell: Tell | None = None) -> None:
        """With `tell` the folder is this process's own: it is locked, a damaged file is moved aside, troubles are
        logged, and `tell` is called in the event loop after each attempt to write. Without it another process's file
        is read and written as it is. `folder` None: a file in memory, which ends with the worker.
        """
        self.connection = Connection(folder, own=tell is not None)
        self.tables: list[Table] = []
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition()  # guards what follows
        self._jobs: deque[_Job] = deque()
        self._rows: dict[Hashable, Work] = {}
        self._learnt: dict[Hashable, Work] = {}
        self._closing = False
        # The thread's own:
        self._failing: str | None = None  # the cause that was logged
        self._retry_s = 0.0  # monotonic: rows wait until then
        self._prune_s = 0.0

    def put(self, key: Hashable, write: Work, *, learnt: bool = False) -> None:
        """Have this written soon; it takes the place of what still waits under its key.

        `learnt`: it may be lost with the power, and waits until nobody waits for an answer.
        """
        with self._wake:
            rows = self._learnt if learnt else self._rows
            rows.pop(key, None)
            rows[key] = write
            _bound(rows, LEARNT_MAX if learnt else ROWS_MAX)
            self._begun()

    async def do(
        self, work: Callable[[sqlite3.Connection], _T], *, seconds: float, writes: bool = True
    ) -> _T:
        """Return what `work` returns. What it writes is one transaction, and on disk then.

        Raises StateError where that cannot be, or is not known after so many seconds; what was not begun by then
        never is. Other exceptions of `work` are passed on.
        """
        self._loop = asyncio.get_running_loop()
        job = _Job(work, writes)
        with self._wake:
            if self._closing:
                raise StateError(f"{self.folder} is closed", "Start vllm-watch again")
            self._jobs.append(job)
            self._begun()
        try:
            # Shielded: what a caller that is cancelled has asked for is done all the same.
            async with asyncio.timeout(seconds):
                done: _T = await asyncio.shield(asyncio.wrap_future(job.done))
                return done
        except TimeoutError:
            job.done.cancel()
            with self._wake, contextlib.suppress(ValueError):
                self._jobs.remove(job)
            cause = f"{self.folder} did not answer within {seconds:.0f} s"
            trouble = Trouble("io", cause, "Look at that disk")
            self.report(trouble, lasting=True)
            raise StateError(trouble.cause, trouble.remedy) from None

    async def close(self) -> None:
        """Write what waits, if that takes no longer than a moment, and let the folder go."""
        with self._wake:
            self._closing = self.connection.closing = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _begun(self) -> None:
        """Wake the thread, or start it. A daemon thread: see above."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="state", daemon=True)
            self._thread.start()
        self._wake.notify()

    @property
    def folder(self) -> Path:
        """Where the file is."""
        return self.connection.folder

    # --- in the thread

    def _work(self) -> None:
        last = False
        while not last:
            job, last = self._next()
            if job is not None:
                self._answer(job)
                continue
            try:
                if self._keep(learnt=True):
                    self._succeeded()
                if not last:
                    self._prune()
            except Exception as error:  # noqa: BLE001 - a bug in one row must not end what journal and ledger need
                self._failed(error)
        self.connection.let_go()

    def _next(self) -> tuple[_Job | None, bool]:
        """Wait for something to do. None: rows; True: there will be no more."""
        with self._wake:
            while not (self._jobs or self._closing):
                waits = bool(self._rows or self._learnt)
                left_s = self._retry_s - time.monotonic()
                if waits and left_s <= 0:
                    break
                self._wake.wait(left_s if waits else None)
            if self._jobs:
                return self._jobs.popleft(), False
            return None, self._closing

    def _answer(self, job: _Job) -> None:
        try:
            if job.writes:
                self._keep(learnt=False)
            if not job.done.set_running_or_notify_cancel():
                return
            if job.writes:
                with self._transaction() as db:
                    done = job.work(db)
            else:
                done = job.work(self._connected())
        except (StateError, OSError, sqlite3.Error) as error:
            _settle(job.done, self._failed(error))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            _settle(job.done, error)
        else:
            # A read says nothing while writes fail: a disk that is full, or read-only, is still read.
            if job.writes or self._failing is None:
                self._succeeded()
            job.done.set_result(done)

    def _keep(self, *, learnt: bool) -> bool:
        """Write the rows that wait, if there are any. Raises what the disk says; they wait on then."""
        with self._wake:
            rows, self._rows = self._rows, {}
            lessons: dict[Hashable, Work] = {}
            if learnt:
                lessons, self._learnt = self._learnt, {}
        if not rows and not lessons:
            return False
        try:
            with self._transaction(durable=bool(rows)) as db:
                for key, write in (*rows.items(), *lessons.items()):
                    try:
                        write(db)
                    except (TypeError, ValueError) as error:
                        cause = f"{key} cannot be written: {error!r}"
                        self.report(Trouble("entry", cause, "Report it: the rest is kept."))
        except BaseException:
            with self._wake:  # what came meanwhile is newer
                self._rows = _bound({**rows, **self._rows}, ROWS_MAX)
                self._learnt = _bound({**lessons, **self._learnt}, LEARNT_MAX)
            raise
        return True

    def _prune(self) -> None:
        if time.monotonic() >= self._prune_s:
            self._prune_s = time.monotonic() + PRUNE_SECONDS
            with self._transaction() as db:
                for table in self.tables:
                    table.prune(db, time.time())

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """All or nothing, and where it is `durable` on the disk at the end."""
        db = self._connected()
        db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            written = self.connection.count(db) if durable else None
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        if written is not None:
            self.connection.mark(written)

    def _connected(self) -> sqlite3.Connection:
        try:
            db, new = self.connection.open()
        except sqlite3.DatabaseError as error:
            if not self.connection.move_aside(error):
                raise
            self.report(troubles.of(error, self.folder))
            db, new = self.connection.open()
        else:
            if new and self.connection.loss is not None:
                cause = f"the history in {self.folder} is damaged: {self.connection.loss}"
                self.report(Trouble("damaged", cause, "Look at the disk; see vllm-watch journal"))
        if new:
            for table in self.tables:
                table.begin(db)
        return db

    # --- how it goes

    def report(self, trouble: Trouble, *, lasting: bool = False) -> None:
        """Tell of a trouble, and log it; one that lasts is logged once."""
        if self._tell is not None and not (lasting and trouble.cause == self._failing):
            _log.error("state_not_kept", **trouble._asdict())
        if lasting:
            self._failing = trouble.cause
        self._in_loop(trouble.reason, trouble.cause)

    def _failed(self, error: Exception) -> StateError:
        self.connection.close()
        self.connection.move_aside(error)
        self._retry_s = time.monotonic() + RETRY_SECONDS
        trouble = troubles.of(error, self.folder)
        self.report(trouble, lasting=True)
        return StateError(trouble.cause, trouble.remedy)

    def _succeeded(self) -> None:
        if self._tell is not None and self._failing is not None:
            _log.info("state_kept_again", folder=str(self.folder))
        self._failing, self._retry_s = None, 0.0
        self._in_loop(None, None)

    def _in_loop(self, reason: str | None, cause: str | None) -> None:
        if self._tell is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens any more
                self._loop.call_soon_threadsafe(self._tell, reason, cause, time.time())


def _settle(done: "Future[Any]", error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):  # nobody waits any more
        done.set_exception(error)


def _bound(rows: dict[Hashable, Work], rows_max: int) -> dict[Hashable, Work]:
    while len(rows) > rows_max:
        del rows[next(iter(rows))]
    return rows
