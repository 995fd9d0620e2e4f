"""Attempts as they stand, where the disk does not: what it would not take is kept, shown and written later.

After the act nothing stops an attempt, a full disk least of all. What it came to must reach the journal
all the same once there is room, or the attempt would seem to be under way for ever.
"""

from collections.abc import Iterable
from typing import Protocol

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.state.attempt import Attempt

_log = structlog.get_logger()

OWED_MAX = 100
"""Far more than can begin while nothing can be written down; beyond it the oldest is given up."""


class Journal(Protocol):
    """Where attempts are written."""

    async def write(self, attempt: Attempt) -> None:
        """Insert it, or replace what is known of its id; on disk when this returns. Raises JournalError."""


class Owed:
    """Writes through, and remembers the newest of each attempt until the disk has it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._owed: dict[str, Attempt] = {}  # by id
        self._in_flight: set[str] = set()  # ids that are just being written

    async def write(self, attempt: Attempt) -> None:
        """Write it. Raises JournalError, and owes it then."""
        self.owe(attempt)
        self._in_flight.add(attempt.id)
        try:
            await self._journal.write(attempt)
        finally:
            self._in_flight.discard(attempt.id)
        if self._owed.get(attempt.id) is attempt:
            del self._owed[attempt.id]

    def owe(self, attempt: Attempt) -> None:
        """Have it written by the next `settle`."""
        self._owed.pop(attempt.id, None)
        self._owed[attempt.id] = attempt
        while len(self._owed) > OWED_MAX:
            lost = self._owed.pop(next(iter(self._owed)))
            _log.error("attempt_not_written", attempt=lost.id, target=lost.target, state=lost.state)

    async def settle(self) -> None:
        """Write what is owed, as far as the disk takes it. Never raises JournalError."""
        for attempt_id in list(self._owed):
            attempt = self._owed.get(attempt_id)
            if attempt is None or attempt_id in self._in_flight:
                continue
            try:
                await self.write(attempt)
            except JournalError:
                return
            _log.info("attempt_written_late", attempt=attempt.id, state=attempt.state)

    def newest(self, kept: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """Return these attempts from the journal, each as it stands."""
        return tuple(self._owed.get(attempt.id, attempt) for attempt in kept)
