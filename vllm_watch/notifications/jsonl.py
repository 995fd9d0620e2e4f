"""Every event as a line of JSON, to stdout or to a file that is renamed before it grows too large.

The lines are written by a thread of its own from a bounded queue: a disk or a reader that hangs costs
lines, which are counted, and nothing else. Page: docs/notifications.md.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from vllm_watch.notifications import base
from vllm_watch.notifications.courier import DROPPED, FAILED, SENT, News, Tell
from vllm_watch.notifications.markup import clean
from vllm_watch.settings.notifications import JsonlStream

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
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self._failing: str | None = None
        self._thread = threading.Thread(
            target=self._work, name=f"events {settings.name}", daemon=True
        )
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> None:
        """Have this event written soon; returns at once."""
        try:
            self._queue.put_nowait(line(event))
        except queue.Full:
            self._say(DROPPED, self._failing)

    def look(self) -> list[base.Finding]:
        """Can it be written here?"""
        return look(self._settings)

    def close(self) -> None:
        """Write what waits, within a moment; blocks for as long."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(CLOSE_SECONDS)

    def _say(self, outcome: str, because: str | None) -> None:
        self._tell(News(outcome, 1, self._queue.qsize(), because, time.time()))

    # --- in the thread

    def _work(self) -> None:
        out: BinaryIO | None = None
        while (data := self._queue.get()) is not None:
            try:
                out = self._opened(out, len(data))
                out.write(data)
                out.flush()
            except (OSError, ValueError) as error:
                _close(out, self._settings.path)
                out = None
                self._failed(clean(str(error), 300))
                continue
            if self._failing is not None:
                _log.info("notifier_works_again", notifier=self._settings.name)
            self._failing = None
            self._say(SENT, None)
        _close(out, self._settings.path)

    def _failed(self, because: str) -> None:
        if because != self._failing:
            _log.error("notifier_fails", notifier=self._settings.name, because=because)
        self._failing = because
        self._say(FAILED, because)
        self._say(DROPPED, because)

    def _opened(self, out: BinaryIO | None, more: int) -> BinaryIO:
        path = self._settings.path
        if path is None:
            return sys.stdout.buffer
        if out is not None and not _is_at(out, path):  # logrotate and its like have moved it
            _close(out, path)
            out = None
        if out is None:
            out = open(path, "ab", opener=_private)  # noqa: SIM115 - it stays open
            _end_line(out, path)
        if out.tell() and out.tell() + more > self._settings.bytes_max:
            _close(out, path)
            _rotate(path, self._settings.files_max)
            out = open(path, "ab", opener=_private)  # noqa: SIM115
        return out


def line(event: Mapping[str, Any]) -> bytes:
    """Return an event as it is written: its texts without secrets, NaN as null."""
    return json.dumps(_plain(event), ensure_ascii=False, allow_nan=False).encode() + b"\n"


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


def look(settings: JsonlStream) -> list[base.Finding]:
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
    path = settings.path
    data = line({"t": t, "event": "test", "notifier": settings.name})
    try:
        if path is None:
            stdout.write(data)
            stdout.flush()
        else:
            with open(path, "ab", opener=_private) as out:
                out.write(data)
    except OSError as error:
        return base.Finding(ok=False, text=f"it was not written: {error.strerror}")
    return base.Finding(ok=True, text="a line that says that it is a test was written")


def _private(path: str, flags: int) -> int:
    """Evidence names models, hosts and processes: for its owner only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _is_at(out: BinaryIO, path: Path) -> bool:
    try:
        return os.fstat(out.fileno()).st_ino == path.stat().st_ino
    except OSError:
        return False


def _end_line(out: BinaryIO, path: Path) -> None:
    """A line that a killed watcher left half written must not swallow the next."""
    with path.open("rb") as before:
        if before.seek(0, os.SEEK_END):
            before.seek(-1, os.SEEK_END)
            if before.read(1) != b"\n":
                out.write(b"\n")


def _rotate(path: Path, files_max: int) -> None:
    """NAME.2 becomes NAME.3, and so on; with the one that is written there are `files_max`."""
    if files_max == 1:
        path.unlink(missing_ok=True)
        return
    for number in range(files_max - 1, 0, -1):
        older = path if number == 1 else path.with_name(f"{path.name}.{number - 1}")
        with contextlib.suppress(FileNotFoundError):
            older.replace(path.with_name(f"{path.name}.{number}"))


def _close(out: BinaryIO | None, path: Path | None) -> None:
    if out is not None and path is not None:
        with contextlib.suppress(OSError):
            out.close()
