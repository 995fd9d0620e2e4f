"""The contract of locks: at most N holders at once, and a holder that cannot renew stops before it acts.

A holder may begin an action until one TTL after its last write. Others may take its slot after
three TTLs: the second allows for a holder that is suspended between its last check and the
action, the third for the action. This suffices if no suspension and no action takes longer than
a TTL. Each watcher measures TTLs on its own clock, another holder's from the last change that it
saw, so clocks are never compared.
"""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from vllm_watch.state.attempt import Attempt

HOST = socket.gethostname()
"""Makes `localhost` addresses unique in a lock shared between hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The result of a request to take or renew a slot."""

    held: bool | None  # None if unknown, which counts as False
    text: str
    others: tuple[Attempt, ...] = ()  # attempts of other users of the lock


class Lock(Protocol):
    """One of N slots of a named lock."""

    ttl_seconds: float

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        """Take a slot, or report its holder; idempotent per attempt id. Some kinds record `attempt` for other watchers (past.py)."""

    async def renew(self, attempt: Attempt | None = None) -> Held:
        """Extend the lease and record the attempt. Unless `held` is True, the caller must begin no action."""

    def still_ours(self) -> bool:
        """Return True if the lease is certainly still ours. Does no I/O."""

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        """Free the slot after the delay. Never raises. If `used` is False, nothing was restarted, so the hourly limit does not count it."""


def boottime_s() -> float:
    """Return CLOCK_BOOTTIME, which runs during suspend and does not follow clock steps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
