"""Follow an engine's log, also across rotations, and keep the failure that it reports; or read a log once, in pieces."""

import asyncio
import gzip
import os
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import structlog

from vllm_watch.errors import WatchError
from vllm_watch.samples.observation import StartFailure
from vllm_watch.support import regular_file, threads
from vllm_watch.support.redaction import excerpt, redacted

if TYPE_CHECKING:
    from vllm_watch.diagnosis.report import Diagnosis

_log = structlog.get_logger()

PIECE_BYTES_MAX = 4 << 20
"""At most this many bytes are read at once, in some 50 ms. vLLM writes some kilobytes per second."""

BACKLOG_BYTES_MAX = 16 << 20
"""At most this many bytes of an existing log are read."""

TAIL_BYTES_MAX = 256 << 10
"""The evidence has at most this many bytes: some thousand lines, including a traceback per worker."""

LINE_CHARACTERS_MAX = 500

_PIECE_BYTES = 256 << 10

_UNPACKED_RATIO_MAX, _UNPACKED_BYTES_MIN = 300, 16 << 20
"""A log may unpack to this many times its size, or to this many bytes. 2 MB of gzip can unpack to 2 GB."""


class EngineLog:
    """Reads one log; use it from the event loop."""

    def __init__(self, target: str, path: Path) -> None:
        self.path = path
        self._target = target
        # Importing this takes an eighth of the start-up time, and few watchers follow a log.
        from vllm_watch.diagnosis.reading import LogReader  # noqa: PLC0415

        self._reader = LogReader()
        self._file: BinaryIO | None = None
        self.start_failure: StartFailure | None = None
        self.attention_backend: str | None = None
        self._problem: str | None = None
        self._busy = False
        self._closed = False

    async def tail(self) -> AsyncIterator[bytes]:
        """Yield the end of the file, without secrets. Raises OSError."""
        yield await asyncio.to_thread(self._tail)

    def _tail(self) -> bytes:
        with self._open(from_end=False) as file:
            left_out = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES_MAX)
            file.seek(left_out)
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
        if left_out:
            # The first line may be incomplete, and part of a secret could not be recognized.
            text = text.partition("\n" if "\n" in text else " ")[2]
        return redacted(text).encode()

    def read_on(self) -> None:
        if self._busy or self._closed:
            return
        self._busy = True
        loop = asyncio.get_running_loop()

        def work() -> None:
            found = self.start_failure
            try:
                found = self.read()
            except Exception as error:  # noqa: BLE001 - one bad line must not stop the thread
                _log.error(
                    "engine_log_not_understood",
                    target=self._target,
                    error=repr(error)[:LINE_CHARACTERS_MAX],
                )
            if self._closed and self._file is not None:
                self._file.close()
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._done, found)

        # Read in a daemon thread, because a lost network mount may block it forever.
        self._busy = threads.begin(work)

    def _done(self, found: StartFailure | None) -> None:
        if found != self.start_failure and found is not None:
            _log.warning(
                "engine_log_says", target=self._target, failure=found.failure,
                deterministic=found.deterministic, line=found.root_cause_line,
            )  # fmt: skip
        self.start_failure, self._busy = found, False

    def read(self) -> StartFailure | None:
        try:
            self._read_piece()
            self._problem = None
        except OSError as error:
            problem = error.strerror or str(error)
            if problem != self._problem:
                _log.warning("engine_log_unreadable", target=self._target, path=str(self.path), cause=problem)  # fmt: skip
            self._problem = problem
            return self.start_failure
        diagnosis = self._reader.diagnosis()
        named = diagnosis.facts.get("attention_backend")
        self.attention_backend = None if named is None else str(named)
        return _start_failure(diagnosis)

    def _read_piece(self) -> None:
        if self._file is None:
            self._file = self._open(from_end=True)
        budget = PIECE_BYTES_MAX
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            # Truncation (logrotate's copytruncate) does not prove that the engine restarted.
            self._file.seek(0)
            self._reader.feed(b"\n")
        piece = self._file.read(budget)
        self._reader.feed(piece)
        if len(piece) < budget and self._replaced():
            self._file.close()
            self._file = None
            # Keep the findings: a rotation is not a restart.
            self._file = self._open(from_end=False)
            self._reader.feed(b"\n" + self._file.read(budget - len(piece)))

    def _replaced(self) -> bool:
        assert self._file is not None  # noqa: S101 - the caller opened it
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False
        known = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (known.st_dev, known.st_ino)

    def _open(self, *, from_end: bool) -> BinaryIO:
        file = regular_file.opened(self.path)
        size = os.fstat(file.fileno()).st_size
        if from_end and size > BACKLOG_BYTES_MAX:
            file.seek(size - BACKLOG_BYTES_MAX)
            file.readline(PIECE_BYTES_MAX)
        return file

    def close(self) -> None:
        self._closed = True
        if self._file is not None and not self._busy:
            self._file.close()
            self._file = None


def _start_failure(diagnosis: "Diagnosis") -> StartFailure | None:
    if not diagnosis.fatal:
        return None
    line = diagnosis.root_cause_line
    return StartFailure(
        failure=diagnosis.failure,
        deterministic=diagnosis.deterministic_start_failure,
        root_cause_line=None if line is None else excerpt(line, LINE_CHARACTERS_MAX),
        explanation=redacted(diagnosis.explanation),
        sentence=diagnosis.sentence,
    )


def pieces(name: str) -> Iterator[bytes]:
    """Yield the log; '-' is standard input. Raises WatchError if the log cannot be read."""
    try:
        if name == "-":
            yield from _read(sys.stdin.buffer)
            return
        with regular_file.opened(Path(name), pipes=True) as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield from _unpacked(name, file) if packed else _read(file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise WatchError(
            f"{name} is damaged gzip", "copy it again, or unpack the intact part"
        ) from None
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror or error}"
        raise WatchError(cause, "name a file that can be read, or '-' for standard input") from None


def _unpacked(name: str, file: BinaryIO) -> Iterator[bytes]:
    unpacked_bytes = 0
    for piece in _read(cast("IO[bytes]", gzip.GzipFile(fileobj=file))):
        unpacked_bytes += len(piece)
        if unpacked_bytes > max(_UNPACKED_BYTES_MIN, _UNPACKED_RATIO_MAX * file.tell()):
            cause = f"{name} unpacks to over {_UNPACKED_RATIO_MAX} times its size, as no log does"
            raise WatchError(cause, "unpack it with gunzip, and give the part that is a log")
        yield piece


def _read(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_PIECE_BYTES), b"")
