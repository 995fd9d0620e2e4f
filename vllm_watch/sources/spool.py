"""Packed pieces of recordings on disk: one worker thread writes and reads them, in order.

A piece (`Chunk`) stays in memory until the disk has it, and for good where the disk does not take
it. Because the worker does one job after the other, a read sees what stood there when it was asked
for, whatever is written over it later.
"""

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
# A thousand targets may each send a piece at once; a disk that is further behind is not waited for.
_ON_THE_WAY_BYTES_MAX = 16 << 20
_SUFFIX = ".flight"
_T = TypeVar("_T")


class Chunk:
    """Packed records: in memory (`packed`), in the spool file at `offset`, or for a moment in both."""

    __slots__ = ("length", "offset", "packed")

    def __init__(self, packed: bytes) -> None:
        self.packed: bytes | None = packed
        self.length = len(packed)
        self.offset: int | None = None


class Spool:
    """A folder of files, one per recording, of which only this object knows what is where."""

    def __init__(self, folder: Path) -> None:
        """Begin to empty the folder: what an earlier process left there says nothing any more."""
        self._folder = folder
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writes: deque[tuple[Future[None], Chunk]] = deque()
        self._on_the_way_bytes = 0
        self._files = 0
        self._failing = False
        # A daemon thread, so that a disk that hangs does not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="flight-recorder", daemon=True)
        self._thread.start()
        self._submit(self._empty_folder)

    def new_file(self) -> Path:
        """Name a file for one recording; the first write makes it."""
        self._files += 1
        return self._folder / f"{self._files}{_SUFFIX}"

    def write(self, file: Path, chunk: Chunk, offset: int) -> None:
        """Have the piece written, and its memory freed by a `settle` after that.

        `chunk.offset` says whether it is on its way: it is not where too much is already.
        """
        if self._on_the_way_bytes + chunk.length <= _ON_THE_WAY_BYTES_MAX:
            self._on_the_way_bytes += chunk.length
            chunk.offset = offset
            self._writes.append((self._submit(partial(_write, file, chunk, offset)), chunk))

    def settle(self) -> None:
        """Free the memory of pieces that the disk has taken since the last call."""
        while self._writes and self._writes[0][0].done():
            future, chunk = self._writes.popleft()
            self._on_the_way_bytes -= chunk.length
            error = future.exception()
            if error is None:
                chunk.packed = None
            else:
                chunk.offset = None
            self._tell(error)

    def read(self, file: Path, chunks: Sequence[Chunk]) -> "Future[list[bytes | None]]":
        """Fetch pieces as they are now; None for one that cannot be had."""
        places = [(chunk.packed, chunk.offset, chunk.length) for chunk in chunks]
        return self._submit(partial(_read, file, places))

    def remove(self, file: Path) -> None:
        """Have the file removed."""
        self._submit(partial(file.unlink, missing_ok=True))

    def close(self, timeout_seconds: float) -> None:
        """Remove the files and end the thread; blocks, for `timeout_seconds` at most."""
        self._submit(self._remove_files)
        self._jobs.put(None)
        self._thread.join(timeout_seconds)

    def _submit(self, job: Callable[[], _T]) -> "Future[_T]":
        future: Future[_T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():  # whoever asked has gone
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

    def _tell(self, error: BaseException | None) -> None:
        """Log the change from working to failing and back."""
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
    if packed is None:  # dropped while it waited
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
