"""The contract of locks with at most N holders at a time.

A holder may begin an action until one TTL after its last write. Others may take its slot after
three TTLs. The second TTL allows for a suspension between the holder's last check and its action.
The third TTL is for the action. No suspension and no action may take longer than a TTL. Each
watcher measures TTLs on its own clock, so clocks are never compared. Another holder's TTL begins
when the watcher sees that holder's last change.
"""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from vllm_watch.state.attempt import Attempt

HOST = socket.gethostname()
"""This host's name, which makes `localhost` addresses unique in a shared lock."""


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
        """Take a slot, or report the holder. Idempotent per attempt id. Some kinds of locks record `attempt` for other watchers (record.py)."""

    async def renew(self, attempt: Attempt | None = None) -> Held:
        """Extend the lease and record the attempt. Unless `held` is True, the caller must not begin an action."""

    def still_ours(self) -> bool:
        """Return True if the lease is certainly still ours. Does no I/O."""

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        """Free the slot after the delay. Never raises. The hourly limit counts the restart only if `used`."""


def boottime_s() -> float:
    """Return CLOCK_BOOTTIME, which runs during suspend and ignores changes of the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
