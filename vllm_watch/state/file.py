"""The state file on disk: readable by its owner only, locked by one process, moved aside if damaged.

A connection is reopened if the file is replaced. It is not thread-safe.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
import time
from pathlib import Path

import structlog

from vllm_watch.errors import StateError
from vllm_watch.state import schema, seal
from vllm_watch.state.seal import Seal
from vllm_watch.support.private_files import FOLDER_MODE, opener, refuse_odd

_log = structlog.get_logger()

NAME = "vllm-watch.sqlite"
LOCK_NAME = "vllm-watch.lock"

BUSY_SECONDS = 2.0
"""Other users of the file, such as an operator's sqlite3, may lock it for this long."""

HELD_SECONDS = 6.0
"""At the start, a locked folder is retried for this long. The previous watcher may take five
seconds to release it."""

DAMAGED_KEPT = 2

_SUFFIXES = ("", "-wal", "-shm")


def lock(folder: Path) -> int:
    """Create the folder if missing, lock it, and return the descriptor. Closing it unlocks the folder.

    Raises StateError if another process has locked it, and OSError if it is not writable.
    """
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


class Connection:
    """Connects on demand."""

    def __init__(self, folder: Path | None, *, own: bool) -> None:
        """Set up without connecting. If `own` is True, the folder belongs to this process and gets locked."""
        self.folder = folder or Path(":memory:")
        self.files = 0  # files removed or moved aside
        self.closing = False  # stop waiting for the lock
        self.loss: str | None = None  # text if writes were lost
        self._seal: Seal | None = None  # the seal (seal.py) after the last durable write
        self._memory = folder is None
        self._own = own and folder is not None
        self._db: sqlite3.Connection | None = None
        self._inodes: tuple[int | None, int | None] = (None, None)  # of the file and its -wal
        self._lock: int | None = None
        self._lock_until_s: float | None = None

    def open(self) -> tuple[sqlite3.Connection, bool]:
        """Return the connection, and True if it is new. Raises StateError, OSError or sqlite3.Error."""
        if self._db is not None and not self._in_place(self._db):
            self.close()
        if self._db is not None:
            return self._db, False
        if self._own and self._lock is None:
            self._lock = self._locked()
        self._db = self._connected()
        self._db.execute("PRAGMA synchronous = FULL")
        self._inodes = self._inodes_now()
        if not self._memory:
            self.loss = self._loss(self._db)
        return self._db, True

    def _loss(self, db: sqlite3.Connection) -> str | None:
        try:
            return seal.loss(db, seal.read_marker(self.folder) or self._seal)
        except sqlite3.DatabaseError as error:
            if self._own:
                raise
            return str(error)  # only the folder's owner moves the file aside

    def _in_place(self, db: sqlite3.Connection) -> bool:
        file_inode, wal_inode = self._inodes_now()
        if file_inode != self._inodes[0]:
            self.files += 1
            return False
        if self._inodes[1] not in (None, wal_inode):
            # Only this connection can still read the deleted -wal.
            _log.error("wal_removed", folder=str(self.folder))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return False
        self._inodes = file_inode, wal_inode
        return True

    def count(self, db: sqlite3.Connection) -> Seal:
        marker = seal.read_marker(self.folder) if self.loss is not None and self._own else None
        return seal.count(db, 0 if marker is None else marker.writes)

    def mark(self, written: Seal) -> None:
        if self._own:
            seal.write_marker(self.folder, written)
            self._seal, self.loss = written, None

    def close(self) -> None:
        connection, self._db = self._db, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def release(self) -> None:
        self.close()
        if self._lock is not None:
            os.close(self._lock)

    def move_aside(self, error: Exception) -> bool:
        if self._lock is None or not is_damage(error):
            return False
        self.close()
        self.files += 1
        with contextlib.suppress(OSError):
            aside = move_aside(self.folder, time.time())
            _log.warning("state_moved_aside", file=str(aside))
        return True

    def _connected(self) -> sqlite3.Connection:
        if not self._memory:
            return connect(self.folder)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        schema.migrate(connection)
        return connection

    def _locked(self) -> int:
        if self._lock_until_s is None:
            self._lock_until_s = time.monotonic() + HELD_SECONDS
        while True:
            try:
                return lock(self.folder)
            except StateError:
                if self.closing or time.monotonic() >= self._lock_until_s:
                    raise
                time.sleep(0.2)

    def _inodes_now(self) -> tuple[int | None, int | None]:
        if self._memory:
            return None, None
        return _inode(self.folder / NAME), _inode(self.folder / f"{NAME}-wal")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


REASONS = ("full", "not_writable", "refused", "damaged", "entry", "io")
"""`refused`: locked by another process, or written by a newer version. `entry`: one entry is unusable."""


_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_DENIED = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EEXIST)
)
_DENIED_BY_SQLITE = frozenset(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
)


def trouble_of(error: BaseException, folder: Path) -> StateError:
    """Return the problem that caused an error."""
    if isinstance(error, StateError):
        return error
    if is_damage(error):
        remedy = "It was moved aside and a new one was begun; check the disk."
        return StateError(f"the state file in {folder} was damaged: {error}", remedy, "damaged")
    number = error.errno if isinstance(error, OSError) else None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if number in _FULL or code == sqlite3.SQLITE_FULL:
        return StateError(f"no space in {folder}: {error}", "Free space on that disk.", "full")
    if number == errno.ELOOP:
        remedy = "Remove the link, and check the folder's permissions."
        return StateError(f"{folder}: {error}", remedy, "not_writable")
    if number in _DENIED or code in _DENIED_BY_SQLITE:
        remedy = "Make the folder writable for the user that vllm-watch runs as."
        return StateError(f"{folder} cannot be written: {error}", remedy, "not_writable")
    return StateError(f"{folder}: {error}", "Check that disk and the kernel's log.", "io")
