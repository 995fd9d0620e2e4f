"""Every event as a line of JSON, to stdout or to a file that is renamed before it grows too large.

The lines are written by a thread of its own from a bounded queue: a disk or a reader that hangs costs
lines, which are counted, and nothing else. Page: docs/notifications.md.
"""

import contextlib
import json
import os
import queue
import stat
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from vllm_watch.notify import base
from vllm_watch.notify.base import DROPPED, FAILED, SENT, Report, Tell
from vllm_watch.notify.markup import clean
from vllm_watch.settings.notifications import JsonlStream
from vllm_watch.support import regular_file

_log = structlog.get_logger()

QUEUE_MAX = 10_000
"""Lines that wait for a disk: some 20 MB at most."""

CLOSE_SECONDS = 2.0
TEXT_MAX = 4000  # of one text within a line


class Stream:
    """Writes what it is given, in order."""

    def __init__(self, settings: JsonlStream, tell: Tell) -> None:
        """`tell` is called from the thread."""
        self._settings = settings
        self._tell = tell
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(QUEUE_MAX)
        self._failing: str | None = None
        self._out: int | None = None  # the worker's own
        self._thread = threading.Thread(
            target=self._work, name=f"events {settings.name}", daemon=True
        )
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> None:
        """Have this event written soon; returns at once. It must not be changed any more."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._say(DROPPED, self._failing)

    def close(self) -> None:
        """Write what waits, within a moment; blocks for as long."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)

    def _say(self, outcome: str, because: str | None) -> None:
        self._tell(Report(outcome, 1, self._queue.qsize(), because, time.time()))

    # --- in the thread

    def _work(self) -> None:
        while (event := self._queue.get()) is not None:
            data = line(event)
            try:
                self._open(len(data))
                self._write(data)
            except (OSError, ValueError) as error:
                self._close()
                self._failed(clean(str(error), 300))
                continue
            if self._failing is not None:
                _log.info("notifier_works_again", notifier=self._settings.name)
            self._failing = None
            self._say(SENT, None)
        self._close()

    def _failed(self, because: str) -> None:
        if because != self._failing:
            _log.error("notifier_fails", notifier=self._settings.name, because=because)
        self._failing = because
        self._say(FAILED, because)
        self._say(DROPPED, because)

    def _open(self, more: int) -> None:
        """Have the right file open, with room for so many bytes more."""
        path = self._settings.path
        if path is None:
            self._out = sys.stdout.fileno()
            return
        if self._out is not None and not _is_at(self._out, path):
            self._close()  # logrotate and its like have moved it
        if self._out is None:
            self._out = _opened(path)
            _end_line(self._out, path)
        size = os.fstat(self._out).st_size  # of a pipe it is 0
        if size and size + more > self._settings.bytes_max:
            self._close()
            _rotate(path, self._settings.files_max)
            self._out = _opened(path)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            assert self._out is not None  # noqa: S101 - opened just before
            left = left[os.write(self._out, left) :]

    def _close(self) -> None:
        out, self._out = self._out, None
        if out is not None and self._settings.path is not None:
            with contextlib.suppress(OSError):
                os.close(out)


def line(event: Mapping[str, Any]) -> bytes:
    """Return an event as it is written: its texts without secrets, NaN as null."""
    return json.dumps(_plain(event), allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value, TEXT_MAX)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def check(settings: JsonlStream) -> list[base.Finding]:
    """Can it be written here?"""
    path = settings.path
    if path is None:
        return [base.Finding(ok=True, text="events go to stdout")]
    if not path.parent.is_dir():
        text = f"there is no folder {path.parent}"
        return [base.Finding(ok=False, text=text, remedy="make it")]
    may = os.access(path if path.exists() else path.parent, os.W_OK)
    remedy = None if may else "make it writable for the user that vllm-watch runs as"
    text = f"events go to {path}" if may else f"{path} cannot be written"
    return [base.Finding(ok=may, text=text, remedy=remedy)]


def write_test(settings: JsonlStream, t: float, stdout: BinaryIO) -> base.Finding:
    """Write one line that says that it is a test."""
    data = line({"t": t, "event": "test", "notifier": settings.name})
    try:
        if settings.path is None:
            stdout.write(data)
            stdout.flush()
        else:
            with os.fdopen(_opened(settings.path), "ab") as out:
                out.write(data)
    except OSError as error:
        return base.Finding(ok=False, text=f"it was not written: {error.strerror}")
    return base.Finding(ok=True, text="a line that says that it is a test was written")


def _opened(path: Path) -> int:
    """Evidence names models, hosts and processes: for its owner only."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    # A pipe that nobody reads is an error, not a wait.
    out = os.open(path, flags | os.O_NONBLOCK, 0o600)
    os.set_blocking(out, True)
    return out


def _is_at(out: int, path: Path) -> bool:
    try:
        return os.fstat(out).st_ino == path.stat().st_ino
    except OSError:
        return False


def _end_line(out: int, path: Path) -> None:
    """A line that a killed watcher left half written must not swallow the next."""
    found = os.fstat(out)
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return
    with regular_file.opened(path) as before:
        before.seek(-1, os.SEEK_END)
        if before.read(1) != b"\n":
            os.write(out, b"\n")


def _rotate(path: Path, files_max: int) -> None:
    """NAME.2 becomes NAME.3, and so on; with the one that is written there are `files_max`."""
    if files_max == 1:
        path.unlink(missing_ok=True)
        return
    for number in range(files_max - 1, 0, -1):
        older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            older.replace(path.with_name(f"{path.name}.{number}"))
