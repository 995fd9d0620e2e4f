"""The state folder as the daemon sees it: what is put is written soon, by one worker thread, or kept until it can be.

Nothing here raises, and nobody who puts something waits for the disk: a watcher whose disk is full or slow
goes on watching. What waits to be written is bounded: one entry per target and per incident.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from vllm_watch.errors import StateError
from vllm_watch.state import file, tables, troubles
from vllm_watch.state.rows import IncidentRow, WatchRow, ended
from vllm_watch.state.tables import Contents
from vllm_watch.state.troubles import Trouble

_log = structlog.get_logger()

OPEN_SECONDS = 10.0
"""How long the start waits for what was kept: reading 20,000 incidents takes a second, and a watcher that
is just being replaced needs up to five to let the folder go."""

HELD_SECONDS = 6.0
"""For so long a folder that is held is asked for again and again at the start."""

RETRY_SECONDS = 10.0
"""After a failure: until it is tried again."""

CLOSE_SECONDS = 3.0
"""How long stopping may wait for the last write."""

WAITING_INCIDENTS_MAX = 5000
"""Incidents that wait for a disk; beyond it the oldest is forgotten."""

PRUNE_SECONDS = 3600.0

Tell = Callable[[Trouble | None, float], None]  # None: it was written; and Unix time


class Store:
    """One state folder. `tell` is called in the event loop that opened it, after each attempt to write."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self._folder = folder
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = threading.Condition()  # guards what follows
        self._incidents: dict[str, IncidentRow] = {}  # that wait to be written, by id
        self._watches: dict[str, WatchRow] = {}  # by target
        self._closing = False
        # The worker's own:
        self._connection: sqlite3.Connection | None = None
        self._held: int | None = None
        self._failing: str | None = None  # the cause that was logged
        self._refused_for_good = False
        self._pruned_s = 0.0
        self._worker: threading.Thread | None = None

    async def open(self) -> Contents:
        """Return what was kept; nothing where it cannot be had in time, which is told and logged."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[Contents] = self._loop.create_future()
        # A daemon thread, so that a disk that hangs does not keep the process from ending.
        self._worker = threading.Thread(
            target=self._work, args=(opened,), name="state", daemon=True
        )
        self._worker.start()
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await opened
        except TimeoutError:
            remedy = "Look at that disk; watching goes on without what was kept."
            cause = f"{self._folder} was not read within {OPEN_SECONDS:.0f} s"
            self._failed(Trouble("io", cause, remedy))
            return Contents()

    @property
    def holds(self) -> bool:
        """Is the folder held for this process, and for no other?"""
        return self._held is not None

    def put(self, incidents: Iterable[IncidentRow] = (), watch: WatchRow | None = None) -> None:
        """Have these written soon; a newer entry takes the place of one that still waits."""
        with self._wake:
            for row in incidents:
                before = self._incidents.pop(row.id, None)
                self._incidents[row.id] = _merged(before, row)
            while len(self._incidents) > WAITING_INCIDENTS_MAX:
                del self._incidents[next(iter(self._incidents))]
            if watch is not None:
                self._watches[watch.target] = watch
            self._wake.notify()

    async def close(self) -> None:
        """Write what waits, if that takes no longer than a moment, and let the folder go."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join, CLOSE_SECONDS)

    # --- in the worker

    def _work(self, opened: "asyncio.Future[Contents]") -> None:
        try:
            contents = self._first_open()
            self._in_loop(_settle, opened, contents)
            while self._wait_for_work():
                self._flush()
            self._flush()
        finally:
            self._in_loop(_settle, opened, Contents())
            self._let_go()
            if not self._closing:  # a bug of ours, which the thread's last words name
                remedy = "Restart vllm-watch, and report what its log says."
                self._failed(Trouble("io", "the thread that writes the state has ended", remedy))

    def _first_open(self) -> Contents:
        deadline_s = time.monotonic() + HELD_SECONDS
        while True:
            try:
                self._connect()
                contents = tables.read(self._required())
            except (StateError, OSError, sqlite3.Error) as error:
                held = isinstance(error, StateError) and self._held is None
                if held and time.monotonic() < deadline_s and not self._closing:
                    time.sleep(0.2)
                    continue
                self._failed(troubles.of(error, self._folder))
                return Contents()
            for entry in contents.damaged:
                remedy = "It is left out; the rest is used."
                self._said(Trouble("entry", f"a kept entry is damaged: {entry}", remedy))
            self._succeeded()
            return contents

    def _wait_for_work(self) -> bool:
        """Wait until there is something to write; False when it is time to end."""
        with self._wake:
            if self._failing is not None and not self._closing:
                self._wake.wait_for(lambda: self._closing, RETRY_SECONDS)
            else:
                self._wake.wait_for(lambda: self._closing or self._incidents or self._watches)
            return not self._closing

    def _flush(self) -> None:
        if self._refused_for_good:
            return
        with self._wake:
            incidents, watches = self._incidents, self._watches
            self._incidents, self._watches = {}, {}
        try:
            if self._connection is None:
                self._connect()
                self._end_strangers(incidents)
            tables.write(self._required(), incidents.values(), watches.values())
            self._prune()
        except (StateError, OSError, sqlite3.Error) as error:
            with self._wake:  # what came meanwhile is newer
                self._incidents = {**incidents, **self._incidents}
                self._watches = {**watches, **self._watches}
            if file.is_damage(error):
                self._begin_anew()
            self._failed(troubles.of(error, self._folder))
        else:
            self._succeeded()

    def _connect(self) -> None:
        if self._held is None:
            self._held = file.lock(self._folder)
        try:
            self._connection = file.connect(self._folder)
        except sqlite3.DatabaseError as error:
            if not file.is_damage(error):
                raise
            self._said(troubles.of(error, self._folder))
            self._begin_anew()
            self._connection = file.connect(self._folder)
        except StateError:
            self._refused_for_good = True  # nothing that waiting mends
            raise

    def _required(self) -> sqlite3.Connection:
        assert self._connection is not None  # noqa: S101 - connected just before
        return self._connection

    def _begin_anew(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with contextlib.suppress(OSError):
            aside = file.move_aside(self._folder, time.time())
            _log.warning("state_moved_aside", file=str(aside))

    def _end_strangers(self, ours: dict[str, IncidentRow]) -> None:
        """A file that could be opened only now: what is open in it was never taken up."""
        for row in tables.read(self._required()).incidents:
            if row.resolved_t is None and row.id not in ours:
                ours[row.id] = ended(row, time.time(), "superseded")

    def _prune(self) -> None:
        now_s = time.monotonic()
        if not self._pruned_s or now_s - self._pruned_s >= PRUNE_SECONDS:
            self._pruned_s = now_s
            tables.prune(self._required(), time.time())

    def _succeeded(self) -> None:
        if self._failing is not None:
            _log.info("state_kept_again", folder=str(self._folder))
        self._failing = None
        self._in_loop(self._tell, None, time.time())

    def _failed(self, trouble: Trouble) -> None:
        if trouble.cause != self._failing:
            self._said(trouble)
        else:
            self._in_loop(self._tell, trouble, time.time())
        self._failing = trouble.cause

    def _said(self, trouble: Trouble) -> None:
        _log.error("state_not_kept", **trouble._asdict())
        self._in_loop(self._tell, trouble, time.time())

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None  # noqa: S101 - the worker was started by open()
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        if self._held is not None:
            file.unlock(self._held)


def _merged(before: IncidentRow | None, row: IncidentRow) -> IncidentRow:
    if before is None or row.opened_t is not None:
        return row
    return replace(row, opened_t=before.opened_t)


def _settle(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)
