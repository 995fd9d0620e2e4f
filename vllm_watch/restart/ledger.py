"""The attempts of this watcher, and their one writer.

After its hook call, an attempt continues even if the disk is full: failed writes are repeated.
"""

from collections.abc import Iterable
from dataclasses import replace

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Journal

_log = structlog.get_logger()

PENDING_MAX = 100
"""At most this many unwritten attempts are kept. The guard starts no attempts while writes fail."""

AHEAD_SECONDS = 60.0
"""If an attempt's time is more than this many seconds in the future, the clock was wrong when the attempt was written."""


class Ledger:
    """Knows each target's last attempt, and writes attempts to the journal."""

    def __init__(self, journal: Journal) -> None:
        self.resumed = False  # True once the attempts of an earlier run are known
        self.busy: dict[str, str] = {}  # target → id of its attempt under way
        self._journal = journal
        self._last: dict[str, tuple[Attempt, str]] = {}
        self._pending: dict[str, Attempt] = {}
        self._in_flight: set[str] = set()

    def last(self, target: str) -> tuple[Attempt, str] | None:
        """Return the target's last attempt, and the text of its stage."""
        return self._last.get(target)

    def show(self, attempt: Attempt, stage: str | None = None) -> None:
        """Make this the last attempt of its targets."""
        last = attempt, attempt.text if stage is None else stage
        self._last.update(dict.fromkeys(attempt.names, last))

    async def read(self, since_t: float = 0.0) -> tuple[Attempt, ...]:
        """Return the newest versions of the stored attempts. Raises JournalError."""
        return self.newest(await self._journal.attempts(None, since_t))

    def newest(self, stored: Iterable[Attempt]) -> tuple[Attempt, ...]:
        return tuple(self._pending.get(attempt.id, attempt) for attempt in stored)

    async def without_future(
        self, attempts: Iterable[Attempt], now_t: float
    ) -> tuple[Attempt, ...]:
        """Replace future times with `now_t`. A future time would block restarts until it is reached."""
        known = []
        for attempt in attempts:
            ahead_s = attempt.acted_t - now_t
            if ahead_s > AHEAD_SECONDS and not attempt.open and attempt.state != "dry_run":
                text = f"{attempt.text} (the clock was {ahead_s:.0f} s ahead)".strip()
                attempt = replace(  # noqa: PLW2901
                    attempt, began_t=now_t, ended_t=now_t, text=text,
                    called_t=None if attempt.called_t is None else now_t,
                )  # fmt: skip
                await self.put(attempt)
            known.append(attempt)
        return tuple(known)

    async def put(self, attempt: Attempt) -> None:
        """Write the attempt now, or later if the write fails."""
        try:
            await self.write(attempt)
        except JournalError as error:
            _log.error("journal_failed", attempt=attempt.id, state=attempt.state, cause=error.cause)
        for name in attempt.names:
            if name not in self._last or self._last[name][0].id == attempt.id:
                self._last[name] = attempt, attempt.text

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
        """Write the attempt with the next `flush`."""
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
