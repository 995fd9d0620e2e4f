"""Store sent and pending notifications, one row per notifier, alert and phase."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.state.schema import packed, unpacked
from vllm_watch.state.worker import Worker

READ_SECONDS = 5.0
WRITE_SECONDS = 5.0
"""Messages wait for a hanging disk for at most this long."""

Key = tuple[str, str, str]  # notifier, id of the subject, phase


@dataclass(frozen=True, slots=True)
class Row:
    """One phase of an alert, for one notifier."""

    t: float  # due since then
    sent_t: float | None  # None: pending
    message: str | None  # idempotency key of its message
    said: Mapping[str, Any]  # the alert at that time


class LedgerTable:
    """Table `notice`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._files = 0

    async def read(self) -> list[tuple[Key, Row]]:
        """Return all rows in the order of their first write. Raises StateError."""

        def read(db: sqlite3.Connection) -> list[tuple[Key, Row]]:
            found = [
                ((notifier, what, phase), Row(t, sent_t, message, _said(text)))
                for notifier, what, phase, t, sent_t, message, text in db.execute(_SELECT)
            ]
            self._files = self._worker.connection.files
            return found

        return await self._worker.do(read, seconds=READ_SECONDS, writes=False)

    async def write(self, changed: Mapping[Key, Row | None]) -> bool:
        """Write the rows, and remove those that are None. Raises StateError.

        If the file is new and lacks the earlier rows, return False without writing.
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
