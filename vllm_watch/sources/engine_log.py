"""Follows an engine's log and keeps what it says the engine failed of.

The file is read beside the looks, in a thread, a bounded piece at a time, and never waited for: a look
takes what is known. A rotated or truncated file goes on with the new one; a file that is not there yet
may come. Of a log that is long when the watcher begins only the end is read.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import structlog

from vllm_watch.samples.engine_log import StartFailure
from vllm_watch.support import regular_file, threads
from vllm_watch.support.redaction import excerpt, redacted

if TYPE_CHECKING:
    from vllm_watch.diagnosis.report import Diagnosis

_log = structlog.get_logger()

PIECE_BYTES_MAX = 4 << 20
"""Read between two looks, some 50 ms of a thread; vLLM writes some kilobytes a second."""

BACKLOG_BYTES_MAX = 16 << 20
"""Read of what was written before the watcher began: hours of an engine that logs its requests."""

TAIL_BYTES_MAX = 256 << 10
"""Kept as evidence before a restart: some thousand lines, a traceback of every worker among them."""

LINE_CHARACTERS_MAX = 500
"""Of the root-cause line in an incident; the log itself has the rest."""


class EngineLog:
    """One log file. To be used from the event loop."""

    def __init__(self, target: str, path: Path) -> None:
        self.path = path
        self._target = target
        # Its hundreds of expressions are an eighth of start-up, and few watchers follow a log.
        from vllm_watch.diagnosis.reading import LogReader  # noqa: PLC0415

        self._reader = LogReader()
        self._file: BinaryIO | None = None
        self._found: StartFailure | None = None
        self._attention: str | None = None
        self._problem: str | None = None
        self._busy = False
        self._closed = False

    @property
    def start_failure(self) -> StartFailure | None:
        """What the log said when it was last read; None where it names no failure."""
        return self._found

    @property
    def attention_backend(self) -> str | None:
        """The attention kernels that the last start named; None where none were."""
        return self._attention

    async def tail(self) -> AsyncIterator[bytes]:
        """Yield the end of the file as it is now, without secrets. Raises OSError where it cannot be read."""
        yield await asyncio.to_thread(self._tail)

    def _tail(self) -> bytes:
        with self._open(from_end=False) as file:
            left_out = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES_MAX)
            file.seek(left_out)
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
        if left_out:
            # What is cut in the middle may be the end of a secret, which nothing names any more.
            text = text.partition("\n" if "\n" in text else " ")[2]
        return redacted(text).encode()

    def read_on(self) -> None:
        """Begin to read what was written since; returns at once, and does nothing while a read is under way."""
        if self._busy or self._closed:
            return
        self._busy = True
        loop = asyncio.get_running_loop()

        def work() -> None:
            found = self._found
            try:
                found = self.read()
            except Exception as error:  # noqa: BLE001 - one line must not end the following for good
                _log.error(
                    "engine_log_not_understood",
                    target=self._target,
                    error=repr(error)[:LINE_CHARACTERS_MAX],
                )
            if self._closed and self._file is not None:
                self._file.close()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._done, found)

        # A daemon thread: a file on a network that is gone may block it for ever, and must not block our end.
        self._busy = threads.begin(work)

    def _done(self, found: StartFailure | None) -> None:
        if found != self._found and found is not None:
            _log.warning(
                "engine_log_says", target=self._target, failure=found.failure,
                deterministic=found.deterministic, line=found.root_cause_line,
            )  # fmt: skip
        self._found, self._busy = found, False

    def read(self) -> StartFailure | None:
        """Read on, in this thread, and return what the log says now; what cannot be read says nothing new."""
        try:
            self._read_piece()
            self._problem = None
        except OSError as error:
            problem = error.strerror or str(error)
            if problem != self._problem:
                _log.warning("engine_log_unreadable", target=self._target, path=str(self.path), cause=problem)  # fmt: skip
            self._problem = problem
            return self._found
        diagnosis = self._reader.diagnosis()
        named = diagnosis.facts.get("attention_backend")
        self._attention = None if named is None else str(named)
        return _start_failure(diagnosis)

    def _read_piece(self) -> None:
        if self._file is None:
            self._file = self._open(from_end=True)
        budget = PIECE_BYTES_MAX
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            # Truncated, as logrotate's copytruncate does: the engine need not have been restarted.
            self._file.seek(0)
            self._reader.feed(b"\n")
        piece = self._file.read(budget)
        self._reader.feed(piece)
        if len(piece) < budget and self._replaced():
            self._file.close()
            self._file = (
                None  # where the new one cannot be opened it is tried again at the next look
            )
            # Rotated, not restarted: what was read goes on to count until a new start begins.
            self._file = self._open(from_end=False)
            self._reader.feed(b"\n" + self._file.read(budget - len(piece)))

    def _replaced(self) -> bool:
        assert self._file is not None  # noqa: S101 - as its caller made it
        try:
            now = self.path.stat()
        except FileNotFoundError:  # moved away, and the new one is not there yet
            return False
        known = os.fstat(self._file.fileno())
        return (now.st_dev, now.st_ino) != (known.st_dev, known.st_ino)

    def _open(self, *, from_end: bool) -> BinaryIO:
        file = regular_file.opened(self.path)
        size = os.fstat(file.fileno()).st_size
        if from_end and size > BACKLOG_BYTES_MAX:
            file.seek(size - BACKLOG_BYTES_MAX)
            file.readline(PIECE_BYTES_MAX)  # the rest of a line whose beginning is not read
        return file

    def close(self) -> None:
        """Close the file: now, or when the read that is under way has ended."""
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
