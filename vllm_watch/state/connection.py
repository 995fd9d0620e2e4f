"""A connection to a folder's state file, reopened if the file is replaced. Not thread-safe."""

import contextlib
import sqlite3
import time
from pathlib import Path

import structlog

from vllm_watch.errors import StateError
from vllm_watch.state import file, schema, seal
from vllm_watch.state.seal import Seal

_log = structlog.get_logger()

HELD_SECONDS = 6.0
"""At the start, a locked folder is retried for this long. The previous watcher may take five
seconds to release it."""


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
            file.unlock(self._lock)

    def move_aside(self, error: Exception) -> bool:
        if self._lock is None or not file.is_damage(error):
            return False
        self.close()
        self.files += 1
        with contextlib.suppress(OSError):
            aside = file.move_aside(self.folder, time.time())
            _log.warning("state_moved_aside", file=str(aside))
        return True

    def _connected(self) -> sqlite3.Connection:
        if not self._memory:
            return file.connect(self.folder)
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        schema.migrate(connection)
        return connection

    def _locked(self) -> int:
        if self._lock_until_s is None:
            self._lock_until_s = time.monotonic() + HELD_SECONDS
        while True:
            try:
                return file.lock(self.folder)
            except StateError:
                if self.closing or time.monotonic() >= self._lock_until_s:
                    raise
                time.sleep(0.2)

    def _inodes_now(self) -> tuple[int | None, int | None]:
        if self._memory:
            return None, None
        return _inode(self.folder / file.NAME), _inode(self.folder / f"{file.NAME}-wal")


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
