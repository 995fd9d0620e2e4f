"""What notifiers were told, and what waits to be told: a row for each phase of what each of them is told of."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.state.columns import packed, unpacked
from vllm_watch.state.worker import Worker

READ_SECONDS = 5.0
WRITE_SECONDS = 5.0
"""A flush takes milliseconds; a message waits no longer for a disk that hangs."""

Key = tuple[str, str, str]  # notifier, id of what it is told of, name of the phase


@dataclass(frozen=True, slots=True)
class Row:
    """One phase, for one notifier."""

    t: float  # Unix seconds: since when it is to be told
    sent_t: float | None  # None: it waits
    message: str | None  # idempotency key of the message that it is, or was, in
    said: Mapping[str, Any]  # what it is told of, as it then was


class LedgerTable:
    """The table `notice`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._files = 0

    async def read(self) -> list[tuple[Key, Row]]:
        """All rows, in the order in which they were first written. Raises StateError."""

        def read(db: sqlite3.Connection) -> list[tuple[Key, Row]]:
            found = [
                ((notifier, what, phase), Row(t, sent_t, message, _said(text)))
                for notifier, what, phase, t, sent_t, message, text in db.execute(_SELECT)
            ]
            self._files = self._worker.connection.files
            return found

        return await self._worker.do(read, seconds=READ_SECONDS, writes=False)

    async def write(self, changed: Mapping[Key, Row | None]) -> bool:
        """Have these on the disk; a row that is None is removed. Raises StateError.

        Returns False where nothing was written, since the file is a new one that lacks all rows of before.
        """

        def write(db: sqlite3.Connection) -> bool:
            if self._files != self._worker.connection.files:
                self._files = self._worker.connection.files
                return False
            for key, row in changed.items():
                if row is None:
                    db.execute(_DELETE, key)
                else:
                    db.execute(_PUT, (*key, row.t, row.sent_t, row.message, packed(row.said)))
            return True

        return await self._worker.do(write, seconds=WRITE_SECONDS)


def _said(text: object) -> dict[str, Any]:
    """Empty where it is damaged."""
    try:
        return unpacked(text)
    except (TypeError, ValueError):
        return {}


_SELECT = "SELECT notifier, matter, phase, t, told_t, message, said FROM notice ORDER BY rowid"
_DELETE = "DELETE FROM notice WHERE notifier = ? AND matter = ? AND phase = ?"
_PUT = """
    INSERT INTO notice (notifier, matter, phase, t, told_t, message, said) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (notifier, matter, phase) DO UPDATE SET told_t = excluded.told_t,
        message = excluded.message, said = excluded.said
"""
