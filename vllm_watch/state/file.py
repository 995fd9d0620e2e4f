"""The state file on disk: made for its owner only, held by one process, moved aside when it is damaged."""

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

from vllm_watch.errors import StateError
from vllm_watch.state import schema
from vllm_watch.support.private_files import FOLDER_MODE, opener, refuse_odd

NAME = "vllm-watch.sqlite"
LOCK_NAME = "vllm-watch.lock"

BUSY_SECONDS = 2.0
"""How long a reader from outside (an operator's sqlite3) may hold us up."""

DAMAGED_KEPT = 2
"""Damaged files that are kept for who wants to look into them."""

_BESIDE = ("", "-wal", "-shm")


def lock(folder: Path) -> int:
    """Make the folder if it is missing and hold it for this process; returns what `unlock` takes.

    Raises StateError where another process holds it, and OSError where it cannot be written.
    """
    # The folder itself may be a link: whoever names it in the configuration chose where that leads.
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    held = opener(str(folder / LOCK_NAME), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise StateError(
            f"another vllm-watch uses the state folder {folder}",
            "Give each vllm-watch a --state-dir of its own, or stop the other one.",
        ) from None
    except OSError:
        os.close(held)
        raise
    return held


def unlock(held: int) -> None:
    """Let the folder go."""
    os.close(held)


def connect(folder: Path) -> sqlite3.Connection:
    """Open the file, made if it is missing, and bring its schema up to date.

    Raises StateError, OSError, or sqlite3.Error; `is_damage` tells whether the file itself is broken.
    """
    path = folder / NAME
    for suffix in _BESIDE:
        refuse_odd(folder / (NAME + suffix))
    _make(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        schema.migrate(connection)
        _check(connection)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA journal_size_limit = 1048576")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Make the file, for its owner only: SQLite would let all read it, and -wal and -shm take its rights.

    A file that is there is not even opened. Closing it would give up every lock that this process's other
    connections hold on it (fcntl(2)), and the next reader from outside would remove the -wal under them.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check(connection: sqlite3.Connection) -> None:
    # Not quick_check: what is missing in an index is missed by every read that uses it.
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")


def is_damage(error: BaseException) -> bool:
    """Is the file broken, rather than the disk full, away or read-only?"""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return "malformed" in str(error)


def move_aside(folder: Path, t: float) -> Path:
    """Rename a damaged file; returns where it now is. Of those moved before, the oldest are removed."""
    aside = folder / f"{NAME}.damaged-{t:.0f}"
    for suffix in _BESIDE:
        beside = folder / (NAME + suffix)
        if beside.exists():
            beside.rename(folder / (aside.name + suffix))
    moved = folder.glob(f"{NAME}.damaged-*")
    old = sorted((each for each in moved if each.name[-4:] not in _BESIDE), reverse=True)
    for each in old[DAMAGED_KEPT:]:
        for suffix in _BESIDE:
            (folder / (each.name + suffix)).unlink(missing_ok=True)
    return aside
