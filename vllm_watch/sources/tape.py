"""Keep the last minutes of a series of texts, with limits on age and size.

Records are packed into chunks. Each group of chunks begins with a full text, so that older groups
can be dropped. With a spool, the chunks are in one bounded file. Each chunk goes into the first gap
that is large enough. One worker thread reads and writes them in order.

A record is a head line, a line with its kind, and its data:
    -    no text, no data
    =    the same text as before, no data
    N    a text of N lines
    @    the last word of each line of the text; the rest is as before. Empty for a comment.
"""

import asyncio
import os
import queue
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import structlog

from vllm_watch.sources.exposition import Lines
from vllm_watch.support.private_files import opener, own_folder, refuse_odd

_log = structlog.get_logger()
# Pieces beyond this backlog are not written. A thousand targets may each send a piece at once.
_PENDING_BYTES_MAX = 16 << 20
_SUFFIX = ".flight"
_T = TypeVar("_T")

_LEVEL = 1  # level 3 takes twice as long, but makes records only 10 % smaller
_GROUPS = 10  # a group is dropped whole, so up to a tenth too much is kept
_OPEN_CHARACTERS_MAX = 32 << 10  # some fifteen scrapes, packed in half a millisecond
_OPEN_SHARE = 8
_READ_TIMEOUT_SECONDS = 30.0  # 8 MB from a disk under load
_COMMENT = ("", "#", " ", "\t", "\r")  # how a line without a value begins


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


@dataclass(slots=True)
class _Group:
    first_seconds: float
    last_seconds: float
    chunks: list[Chunk] = field(default_factory=list)
    packed_bytes: int = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.packed_bytes += chunk.length

    @property
    def memory_bytes(self) -> int:
        return sum([chunk.length for chunk in self.chunks if chunk.offset is None])


class Tape:
    """Keeps `seconds` of history in at most `bytes_max` of packed records."""

    def __init__(self, *, seconds: float, bytes_max: int, spool: Spool | None) -> None:
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._spool = spool
        self._file = spool.new_file() if spool else None
        self._before: Lines | str | None = None  # the last text of the open group
        self._groups: list[_Group] = []  # oldest first; the last is still growing
        self._is_closed = True
        self._open: list[str] = []
        self._open_characters = 0

    @property
    def span_seconds(self) -> float:
        groups = self._groups
        return groups[-1].last_seconds - groups[0].first_seconds if groups else 0.0

    @property
    def newest_seconds(self) -> float:
        return self._groups[-1].last_seconds if self._groups else 0.0

    @property
    def memory_bytes(self) -> int:
        # Without a disk, all packed data is in memory.
        packed = sum(
            [group.memory_bytes if self._spool else group.packed_bytes for group in self._groups]
        )
        before = self._before.tails if isinstance(self._before, Lines) else self._before
        return (sys.getsizeof(before) if before else 0) + self._open_characters + packed

    def append(
        self,
        clock_seconds: float,
        head: str,
        text: str | None,
        lines: Lines | None = None,
        *,
        memory_bytes: int,
    ) -> None:
        if self._is_closed or self._is_full(self._groups[-1], clock_seconds, memory_bytes):
            self._end_group()
            self._groups.append(_Group(clock_seconds, clock_seconds))
            self._is_closed = False
        record = _record(head, text, lines, self._before)
        self._before = self._before if text is None else lines or text
        self._open.append(record)
        self._open_characters += len(record)
        self._groups[-1].last_seconds = clock_seconds
        if self._open_characters >= min(_OPEN_CHARACTERS_MAX, memory_bytes // _OPEN_SHARE):
            self._pack()
        while len(self._groups) > 1 and (
            self._groups[0].last_seconds < clock_seconds - self._seconds
        ):
            self._drop(0)

    def free_memory(self) -> None:
        """Pack the open records if there is a spool. Otherwise drop the oldest group in memory."""
        if self._spool and (self._open or self._before):
            self._end_group()
            return
        for index, group in enumerate(self._groups):
            if group.memory_bytes or index == len(self._groups) - 1:
                self._drop(index)
                return

    async def packed_groups(self, since_seconds: float) -> list[list[bytes]]:
        """Raises TimeoutError if the disk does not answer."""
        groups = [group for group in self._groups if group.last_seconds >= since_seconds]
        last = [_packed(self._open)] if self._open else []
        chunks = [chunk for group in groups for chunk in group.chunks]
        found: Sequence[bytes | None] = [chunk.packed for chunk in chunks]
        lengths = [len(group.chunks) for group in groups]
        if self._spool and self._file:
            reading = asyncio.wrap_future(self._spool.read(self._file, chunks))
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                found = await reading
        pieces = iter(found)
        fetched = [_until_gone([next(pieces) for _ in range(length)]) for length in lengths]
        if fetched and len(fetched[-1]) == lengths[-1]:
            fetched[-1] += last
        return fetched

    def forget(self) -> None:
        while self._groups:
            self._drop(0)
        if self._spool and self._file:
            self._spool.remove(self._file)

    def _is_full(self, group: _Group, clock_seconds: float, memory_bytes: int) -> bool:
        age = clock_seconds - group.first_seconds  # negative if the clock was set back
        if not 0 <= age < self._seconds / _GROUPS:
            return True
        if not group.chunks:
            return False
        # Groups are dropped whole, so each must be small, but larger than its full first text.
        bytes_max = self._bytes_max if self._spool else min(self._bytes_max, memory_bytes)
        return group.packed_bytes >= max(bytes_max // _GROUPS, 2 * group.chunks[0].length)

    def _end_group(self) -> None:
        if self._open:
            self._pack()
        self._before = None
        self._is_closed = True

    def _pack(self) -> None:
        chunk = Chunk(_packed(self._open))
        self._open, self._open_characters = [], 0
        self._groups[-1].add(chunk)
        while sum(group.packed_bytes for group in self._groups) > self._bytes_max:
            self._drop(0)
        if self._spool and self._file and self._groups:
            while (offset := self._first_gap(chunk.length)) + chunk.length > self._bytes_max:
                self._drop(0)
            self._spool.write(self._file, chunk, offset)

    def _first_gap(self, length: int) -> int:
        taken = sorted(
            (chunk.offset, chunk.length)
            for group in self._groups
            for chunk in group.chunks
            if chunk.offset is not None
        )
        end = 0
        for offset, taken_length in taken:
            if offset - end >= length:
                break
            end = offset + taken_length
        return end

    def _drop(self, index: int) -> None:
        for chunk in self._groups.pop(index).chunks:
            chunk.packed = None
        if index == len(self._groups):
            self._open, self._open_characters = [], 0
            self._before = None
            self._is_closed = True


def _packed(records: list[str]) -> bytes:
    return zlib.compress("".join(records).encode("utf-8", "surrogatepass"), _LEVEL)


def _until_gone(pieces: list[bytes | None]) -> list[bytes]:
    found = []
    for piece in pieces:
        if piece is None:
            break
        found.append(piece)
    return found


def _split(text: str) -> Lines:
    parts = [
        (line, "", "") if line[:1] in _COMMENT else line.rpartition(" ")
        for line in text.split("\n")
    ]
    return Lines(
        tuple([f"{head}{space}" for head, space, _ in parts]),
        "\n".join([tail for *_, tail in parts]),
    )


def _record(head: str, text: str | None, lines: Lines | None, before: Lines | str | None) -> str:
    if text is None:
        return f"{head}\n-\n"
    was = _split(before) if isinstance(before, str) else before
    now = lines or _split(text)
    if was is None or (now.heads is not was.heads and now.heads != was.heads):
        return f"{head}\n{len(now.heads)}\n{text}\n"
    return f"{head}\n=\n" if now.tails == was.tails else f"{head}\n@\n{now.tails}\n"


def records(group: Sequence[bytes]) -> Iterator[tuple[str, list[str] | None]]:
    """Yield the head line of each record, and the lines of its text or None. Raises zlib.error if the data is damaged."""
    lines: list[str] = []
    for packed in group:
        rows = iter(zlib.decompress(packed).decode("utf-8", "surrogatepass").split("\n"))
        while head := next(rows):
            kind = next(rows)
            if kind == "@":
                lines = list(map(_renewed, lines, rows))
            elif kind not in ("-", "="):
                lines = list(islice(rows, int(kind)))
            yield head, None if kind == "-" else lines


def _renewed(line: str, tail: str) -> str:
    return line if not tail and line[:1] in _COMMENT else line[: line.rfind(" ") + 1] + tail
