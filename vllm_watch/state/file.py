"""The state file on disk: readable by its owner only, locked by one process, moved aside if damaged."""

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
"""Other users of the file, such as an operator's sqlite3, may lock it for this long."""

DAMAGED_KEPT = 2

_SUFFIXES = ("", "-wal", "-shm")


def lock(folder: Path) -> int:
    """Create the folder if missing, lock it, and return the handle for `unlock`. Raises StateError
    if another process has locked it, and OSError if it is not writable."""
    # The folder itself may be a symlink, because the configuration names it.
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
    """Release the folder."""
    os.close(held)


def connect(folder: Path) -> sqlite3.Connection:
    """Open or create the file, and migrate its schema. Raises StateError, OSError or sqlite3.Error."""
    path = folder / NAME
    for suffix in _SUFFIXES:
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
    """Create the file with mode 0600.

    SQLite would make it world-readable, and -wal and -shm inherit its mode. An existing file is
    not opened, because closing it would release the locks of this process's other connections
    (fcntl(2)).
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check(connection: sqlite3.Connection) -> None:
    # quick_check does not find rows missing from an index.
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")


def is_damage(error: BaseException) -> bool:
    """Return True if the error means a damaged file, not a full, missing or read-only disk."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return "malformed" in str(error)


def move_aside(folder: Path, t: float) -> Path:
    """Rename a damaged file and return its new path. Delete the oldest renamed files."""
    aside = folder / f"{NAME}.damaged-{t:.0f}"
    for suffix in _SUFFIXES:
        path = folder / (NAME + suffix)
        if path.exists():
            path.rename(folder / (aside.name + suffix))
    moved = folder.glob(f"{NAME}.damaged-*")
    old = sorted((each for each in moved if each.name[-4:] not in _SUFFIXES), reverse=True)
    for each in old[DAMAGED_KEPT:]:
        for suffix in _SUFFIXES:
            (folder / (each.name + suffix)).unlink(missing_ok=True)
    return aside
