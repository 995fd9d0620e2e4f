"""The state folder's worker: one thread with one connection, which writes a queue in order.

`put` returns at once, and its row is retried until it is on disk. `do` writes only after all
earlier rows are on disk. Otherwise, a kill -9 could lose an incident after its restart or message.
A hanging disk blocks neither the event loop nor the exit.
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
from vllm_watch.state.file import Connection, trouble_of

_log = structlog.get_logger()
_T = TypeVar("_T")

RETRY_SECONDS = 10.0
"""Failed rows are retried after this time. `do` retries them earlier."""

CLOSE_SECONDS = 3.0

PRUNE_SECONDS = 3600.0

ROWS_MAX, LEARNT_MAX = 5000, 10_000
"""At most ROWS_MAX rows and LEARNT_MAX learnt rows (see `put`) wait, each of some KB. Beyond a limit, the oldest row is dropped."""

Work = Callable[[sqlite3.Connection], object]
OnWrite = Callable[[str | None, str | None, float], None]
"""Called with one of file.REASONS, the cause and the Unix time. The first two are None after a
success."""


class Table(Protocol):
    """A table of the state file. Its methods run in the worker's thread."""

    def begin(self, db: sqlite3.Connection) -> None:
        """Prepare a new connection. The file may be new."""

    def prune(self, db: sqlite3.Connection, t: float) -> None:
        """Remove the oldest rows above the limits of age and number. `t` is the current Unix time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    writes: bool
    done: "Future[Any]" = field(default_factory=Future)


class Worker:
    """Reads and writes the state file of one folder."""

    def __init__(self, folder: Path | None, on_write: OnWrite | None = None) -> None:
        """If `folder` is None, the file is in memory. `on_write` is given only for our own folder, and called in the event loop after each write."""
        self.connection = Connection(folder, own=on_write is not None)
        self.tables: list[Table] = []
        self._on_write = on_write
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Condition()  # guards the fields below
        self._jobs: deque[_Job] = deque()
        self._rows: dict[Hashable, Work] = {}
        self._learnt: dict[Hashable, Work] = {}
        self._closing = False
        # Only used by the thread:
        self._failing: str | None = None  # the cause logged last
        self._retry_s = 0.0  # rows are not retried before this time
        self._prune_s = 0.0

    def put(self, key: Hashable, write: Work, *, learnt: bool = False) -> None:
        """Queue a row. It replaces a pending row with the same key.

        `learnt` rows, such as baselines, are written while no job waits. A power failure may lose
        them.
        """
        with self._wake:
            waits = learnt and key not in self._rows
            rows = self._learnt if waits else self._rows
            for each in (self._rows, self._learnt):
                each.pop(key, None)
            rows[key] = write
            _bound(rows, LEARNT_MAX if waits else ROWS_MAX)
            self._wake_thread()

    async def do(
        self, work: Callable[[sqlite3.Connection], _T], *, seconds: float, writes: bool = True
    ) -> _T:
        """Run `work` in one transaction, and return its result once the writes are on disk.

        Raises StateError on failure or timeout, and other exceptions of `work`. At a timeout, work
        that has not begun is dropped.
        """
        self._loop = asyncio.get_running_loop()
        job = _Job(work, writes)
        with self._wake:
            if self._closing:
                raise StateError(f"{self.folder} is closed", "Start vllm-watch again")
            self._jobs.append(job)
            self._wake_thread()
        try:
            # Shielded, so that the work is done even if its caller is cancelled.
            async with asyncio.timeout(seconds):
                done: _T = await asyncio.shield(asyncio.wrap_future(job.done))
                return done
        except TimeoutError:
            job.done.cancel()
            with self._wake, contextlib.suppress(ValueError):
                self._jobs.remove(job)
            cause = f"{self.folder} did not answer within {seconds:.0f} s"
            trouble = StateError(cause, "Check that disk", "io")
            self.report(trouble, lasting=True)
            raise trouble from None

    async def close(self) -> None:
        with self._wake:
            self._closing = self.connection.closing = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="state", daemon=True)
            self._thread.start()
        self._wake.notify()

    @property
    def folder(self) -> Path:
        return self.connection.folder

    # --- in the thread

    def _work(self) -> None:
        last = False
        while not last:
            job, last = self._next()
            if job is not None:
                self._run_job(job)
                continue
            try:
                if self._write_rows(learnt=True):
                    self._succeeded()
                if not last:
                    self._prune()
            except Exception as error:  # noqa: BLE001 - a bug in one row must not stop journal and ledger
                self._failed(error)
        self.connection.release()

    def _next(self) -> tuple[_Job | None, bool]:
        """Return the next job, or None to write rows, and True if the worker must end."""
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

    def _run_job(self, job: _Job) -> None:
        try:
            if job.writes:
                self._write_rows(learnt=False)
            if not job.done.set_running_or_notify_cancel():
                return
            if job.writes:
                with self._transaction() as db:
                    done = job.work(db)
            else:
                done = job.work(self._connected())
        except (StateError, OSError, sqlite3.Error) as error:
            _fail_job(job.done, self._failed(error))
        except Exception as error:  # noqa: BLE001 - passed to the caller
            _fail_job(job.done, error)
        else:
            # A successful read does not prove that writes succeed: a full disk is readable.
            if job.writes or self._failing is None:
                self._succeeded()
            job.done.set_result(done)

    def _write_rows(self, *, learnt: bool) -> bool:
        with self._wake:
            rows, self._rows = self._rows, {}
            learnt_rows: dict[Hashable, Work] = {}
            if learnt:
                learnt_rows, self._learnt = self._learnt, {}
        if not rows and not learnt_rows:
            return False
        try:
            with self._transaction(durable=bool(rows)) as db:
                for key, write in (*rows.items(), *learnt_rows.items()):
                    try:
                        write(db)
                    except (TypeError, ValueError) as error:
                        cause = f"{key} cannot be written: {error!r}"
                        self.report(StateError(cause, "Report it: the rest is kept.", "entry"))
        except BaseException:
            with self._wake:  # newer rows win
                self._rows = _bound({**rows, **self._rows}, ROWS_MAX)
                self._learnt = _bound({**learnt_rows, **self._learnt}, LEARNT_MAX)
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
            self.report(trouble_of(error, self.folder))
            db, new = self.connection.open()
        else:
            if new and self.connection.loss is not None:
                cause = f"the history in {self.folder} is damaged: {self.connection.loss}"
                remedy = "Check the disk; see vllm-watch journal"
                self.report(StateError(cause, remedy, "damaged"))
        if new:
            for table in self.tables:
                table.begin(db)
        return db

    def report(self, trouble: StateError, *, lasting: bool = False) -> None:
        if self._on_write is not None and not (lasting and trouble.cause == self._failing):
            said = {"cause": trouble.cause, "remedy": trouble.remedy}
            _log.error("state_not_kept", reason=trouble.reason, **said)
        if lasting:
            self._failing = trouble.cause
        self._notify(trouble.reason, trouble.cause)

    def _failed(self, error: Exception) -> StateError:
        self.connection.close()
        self.connection.move_aside(error)
        self._retry_s = time.monotonic() + RETRY_SECONDS
        trouble = trouble_of(error, self.folder)
        self.report(trouble, lasting=True)
        return trouble

    def _succeeded(self) -> None:
        if self._on_write is not None and self._failing is not None:
            _log.info("state_kept_again", folder=str(self.folder))
        self._failing, self._retry_s = None, 0.0
        self._notify(None, None)

    def _notify(self, reason: str | None, cause: str | None) -> None:
        if self._on_write is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._on_write, reason, cause, time.time())


def _fail_job(done: "Future[Any]", error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):  # the caller has given up
        done.set_exception(error)


def _bound(rows: dict[Hashable, Work], rows_max: int) -> dict[Hashable, Work]:
    while len(rows) > rows_max:
        del rows[next(iter(rows))]
    return rows
