"""Keep packed pieces of recordings on disk. One worker thread does all reads and writes in
order."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from vllm_watch.support.private_files import opener, own_folder, refuse_odd

_log = structlog.get_logger()
# Pieces beyond this backlog are not written. A thousand targets may each send a piece at once.
_PENDING_BYTES_MAX = 16 << 20
_SUFFIX = ".flight"
_T = TypeVar("_T")


class Chunk:
    """Packed records, in memory (`packed`) or in the spool file at `offset`."""

    __slots__ = ("length", "offset", "packed")

    def __init__(self, packed: bytes) -> None:
        self.packed: bytes | None = packed
        self.length = len(packed)
        self.offset: int | None = None


class Spool:
    """A folder with one file per recording."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writes: deque[tuple[Future[None], Chunk]] = deque()
        self._pending_bytes = 0
        self._files = 0
        self._failing = False
        # A daemon thread lets the process end even if the disk hangs.
        self._thread = threading.Thread(target=self._work, name="flight-recorder", daemon=True)
        self._thread.start()
        self._submit(self._empty_folder)

    def new_file(self) -> Path:
        self._files += 1
        return self._folder / f"{self._files}{_SUFFIX}"

    def write(self, file: Path, chunk: Chunk, offset: int) -> None:
        """Queue the chunk for writing, and set `chunk.offset`, unless the backlog is full."""
        if self._pending_bytes + chunk.length <= _PENDING_BYTES_MAX:
            self._pending_bytes += chunk.length
            chunk.offset = offset
            self._writes.append((self._submit(partial(_write, file, chunk, offset)), chunk))

    def free_written(self) -> None:
        while self._writes and self._writes[0][0].done():
            future, chunk = self._writes.popleft()
            self._pending_bytes -= chunk.length
            error = future.exception()
            if error is None:
                chunk.packed = None
            else:
                chunk.offset = None
            self._log_change(error)

    def read(self, file: Path, chunks: Sequence[Chunk]) -> "Future[list[bytes | None]]":
        """Return the data; None for an unreadable chunk."""
        places = [(chunk.packed, chunk.offset, chunk.length) for chunk in chunks]
        return self._submit(partial(_read, file, places))

    def remove(self, file: Path) -> None:
        self._submit(partial(file.unlink, missing_ok=True))

    def close(self, timeout_seconds: float) -> None:
        self._submit(self._remove_files)
        self._jobs.put(None)
        self._thread.join(timeout_seconds)

    def _submit(self, job: Callable[[], _T]) -> "Future[_T]":
        future: Future[_T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(job())
            except OSError as error:
                future.set_exception(error)

        self._jobs.put(run)
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _empty_folder(self) -> None:
        own_folder(self._folder)
        self._remove_files()

    def _remove_files(self) -> None:
        refuse_odd(self._folder)
        for file in self._folder.glob(f"*{_SUFFIX}"):
            file.unlink(missing_ok=True)

    def _log_change(self, error: BaseException | None) -> None:
        if (error is not None) == self._failing:
            return
        self._failing = error is not None
        if error is None:
            _log.info("flight recorder spools to disk again", folder=str(self._folder))
        else:
            _log.warning(
                "flight recorder cannot write its spool and keeps a shorter history in memory",
                folder=str(self._folder),
                error=str(error),
                remedy="make room in the state directory, or make it writable",
            )


def _write(file: Path, chunk: Chunk, offset: int) -> None:
    packed = chunk.packed
    if packed is None:
        return
    refuse_odd(file.parent)
    descriptor = opener(str(file), os.O_WRONLY | os.O_CREAT)
    try:
        written = 0
        while written < len(packed):
            written += os.pwrite(descriptor, packed[written:], offset + written)
    finally:
        os.close(descriptor)


def _read(file: Path, places: Sequence[tuple[bytes | None, int | None, int]]) -> list[bytes | None]:
    if all(packed is not None for packed, _, _ in places):
        return [packed for packed, _, _ in places]
    try:
        descriptor = opener(str(file), os.O_RDONLY)
    except OSError:
        return [packed for packed, _, _ in places]
    try:
        return [
            packed or (None if offset is None else os.pread(descriptor, length, offset))
            for packed, offset, length in places
        ]
    finally:
        os.close(descriptor)
