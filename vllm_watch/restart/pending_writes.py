"""Write attempts to the journal, and repeat failed writes.

After its hook call, an attempt continues even if the disk is full.
"""

from collections.abc import Iterable

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

PENDING_MAX = 100
"""At most this many unwritten attempts are kept. The guard starts no attempts while writes fail."""


class PendingWrites:
    """Writes attempts to the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pending: dict[str, Attempt] = {}
        self._in_flight: set[str] = set()

    async def write(self, attempt: Attempt) -> None:
        """Write the attempt. After JournalError, `flush` retries."""
        self.add(attempt)
        self._in_flight.add(attempt.id)
        try:
            await self._journal.write(attempt)
        finally:
            self._in_flight.discard(attempt.id)
        if self._pending.get(attempt.id) is attempt:
            del self._pending[attempt.id]

    def add(self, attempt: Attempt) -> None:
        self._pending.pop(attempt.id, None)
        self._pending[attempt.id] = attempt
        while len(self._pending) > PENDING_MAX:
            lost = self._pending.pop(next(iter(self._pending)))
            _log.error("attempt_not_written", attempt=lost.id, target=lost.target, state=lost.state)

    async def flush(self) -> None:
        """Write pending attempts until a write fails. Never raises JournalError."""
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
        return tuple(self._pending.get(attempt.id, attempt) for attempt in stored)
