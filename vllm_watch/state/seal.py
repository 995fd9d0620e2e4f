"""Detect lost writes of the state file.

SQLite silently accepts an empty file, and a truncated or missing -wal. Therefore the file contains
a random ID (the generation), a count of durable writes and a checksum of the journal's rows. After
each durable write, generation and count are also written to a marker file. If the state file is
behind its marker, writes were lost.
"""

import contextlib
import os
import sqlite3
import zlib
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.support import regular_file
from vllm_watch.support.private_files import opener

NAME = "vllm-watch.generation"
_BYTES_MAX = 4096

_HELD, _NOTED = ("attempt", "standing"), "audit"
"""Tables with a checksum, because SQLite does not detect a flipped bit. Rows are only appended to
`audit`."""


@dataclass(frozen=True, slots=True)
class Seal:
    """A state file's generation and number of durable writes."""

    generation: str  # "" in an unreadable marker
    writes: int

    def to_line(self) -> bytes:
        text = f"{self.generation} {self.writes:020d}"
        return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()

    @classmethod
    def of_line(cls, line: bytes) -> "Seal":
        with contextlib.suppress(ValueError):
            generation, writes, _ = line.decode("ascii").split()
            seal = cls(generation, int(writes))
            if seal.to_line() == line:
                return seal
        return cls("", 0)


def read_marker(folder: Path) -> Seal | None:
    """Return the marker, or None if there is none. Raises OSError."""
    try:
        return Seal.of_line(regular_file.read(folder / NAME, _BYTES_MAX))
    except FileNotFoundError:
        return None


def write_marker(folder: Path, seal: Seal) -> None:
    """Write the marker to disk. Raises OSError."""
    held = opener(str(folder / NAME), os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(held, seal.to_line(), 0)
        os.fsync(held)
    finally:
        os.close(held)


def of(db: sqlite3.Connection) -> Seal:
    """Return the file's own seal. Raises sqlite3.Error, also if the seal is missing."""
    row = db.execute("SELECT generation, writes FROM seal").fetchone()
    if row is None or not isinstance(row[0], str) or not isinstance(row[1], int):
        raise sqlite3.DatabaseError("malformed: it has no generation")
    return Seal(*row)


def count(db: sqlite3.Connection, least: int = 0) -> Seal:
    """Increment the count within the transaction. The result exceeds `least`."""
    db.execute("UPDATE seal SET writes = max(writes, ?) + 1", (least,))
    return of(db)


def update_sums(db: sqlite3.Connection, *, pruned: bool = False) -> None:
    """Update the checksum of `attempt` and `standing`. If `pruned`, also update that of `audit`."""
    db.execute("UPDATE seal SET held = ?", (_sum(db, *_HELD),))
    if pruned:
        db.execute("UPDATE seal SET noted = ?", (_sum(db, _NOTED),))


def add_audit_row(db: sqlite3.Connection) -> None:
    """Add the newest `audit` row to that table's checksum."""
    row = db.execute(f"SELECT * FROM {_NOTED} ORDER BY 1 DESC LIMIT 1").fetchone()  # noqa: S608 - our own
    (before,) = db.execute("SELECT noted FROM seal").fetchone()
    db.execute("UPDATE seal SET noted = ?", (zlib.crc32(repr(row).encode(), before or 0),))


def loss(db: sqlite3.Connection, marker: Seal | None) -> str | None:
    """Return a text if the file lost writes, or None. Raises sqlite3.DatabaseError if a row was altered."""
    seal = of(db)
    held, noted = db.execute("SELECT held, noted FROM seal").fetchone()
    if held not in (None, _sum(db, *_HELD)) or noted not in (None, _sum(db, _NOTED)):
        raise sqlite3.DatabaseError("malformed: a row of the journal was altered")
    if marker is None or (not marker.generation and seal.writes):
        return None
    if marker.generation != seal.generation:
        return "the state file was removed, emptied or replaced"
    missing = marker.writes - seal.writes
    if missing > 0:
        return f"the last {missing} writes are missing: the -wal next to it was removed, cut or damaged"
    return None


def _sum(db: sqlite3.Connection, *tables: str) -> int:
    total = 0
    for table in tables:
        for row in db.execute(f"SELECT * FROM {table} ORDER BY 1"):  # noqa: S608 - our own
            total = zlib.crc32(repr(row).encode(), total)
    return total
