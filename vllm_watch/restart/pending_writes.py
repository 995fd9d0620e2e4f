"""Attempts as they stand where the disk does not: what it would not take is kept in memory and written later.

After the call nothing stops an attempt, a full disk least of all. How it ended must reach the journal all the
same once there is room, or the attempt would seem to be under way for ever.
"""

from collections.abc import Iterable

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

PENDING_MAX = 100
"""Far more than can begin while nothing can be written; beyond it the oldest is given up."""


class PendingWrites:
    """Writes attempts to the journal, and keeps the newest state of each until the disk has it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: dict[str, Attempt] = {}  # by id
        self._in_flight: set[str] = set()  # ids that are being written now

    async def write(self, attempt: Attempt) -> None:
        """Write it. Raises JournalError; it is then written by a later `flush`."""
        self.add(attempt)
        self._in_flight.add(attempt.id)
        try:
            await self._journal.write(attempt)
        finally:
            self._in_flight.discard(attempt.id)
        if self._pending.get(attempt.id) is attempt:
            del self._pending[attempt.id]

    def add(self, attempt: Attempt) -> None:
        """Have it written by the next `flush`."""
        self._pending.pop(attempt.id, None)
        self._pending[attempt.id] = attempt
        while len(self._pending) > PENDING_MAX:
            lost = self._pending.pop(next(iter(self._pending)))
            _log.error("attempt_not_written", attempt=lost.id, target=lost.target, state=lost.state)

    async def flush(self) -> None:
        """Write what is pending, as far as the disk takes it. Never raises JournalError."""
        for attempt_id in list(self._pending):
            attempt = self._pending.get(attempt_id)
            if attempt is None or attempt_id in self._in_flight:
                continue
            try:
                await self.write(attempt)
            except JournalError:
                return
            _log.info("attempt_written_late", attempt=attempt.id, state=attempt.state)

    def newest(self, stored: Iterable[Attempt]) -> tuple[Attempt, ...]:
        """Return these attempts from the journal, each as it stands."""
        return tuple(self._pending.get(attempt.id, attempt) for attempt in stored)
