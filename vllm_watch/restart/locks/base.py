"""The contract of locks: at most N holders at once, and a holder that cannot renew stops before it acts.

A holder may begin an action for one TTL after its last write, by its own clock, counted from before the write. Others
may take its slot after three: the second is for a holder suspended between its last check of the clock and the action,
the third for the action to end. So no more than N act at once while no pause and no action exceeds a TTL. Others'
leases are judged by when they were last seen to change, never by comparing clocks.
"""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from vllm_watch.state.attempt import Attempt

HOST = socket.gethostname()
"""Owner of `localhost` addresses in a lock shared between hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The lock's answer."""

    held: bool | None  # None: no answer, which is never a yes
    text: str  # holder and times
    others: tuple[Attempt, ...] = ()  # attempts of all users of the lock, as stored in it


class Lock(Protocol):
    """One of N slots of one named lock."""

    ttl_seconds: float

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        """Take a slot, or report its holder. Idempotent per attempt id.

        `attempt` is recorded for the others if the kind of lock supports it (past.py).
        """

    async def renew(self, attempt: Attempt | None = None) -> Held:
        """Extend the lease, and record the attempt's state.

        If `held` is not True, stop before the next acting step.
        """

    def still_ours(self) -> bool:
        """Return True if the lease is certainly still ours, without I/O."""

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        """Free the slot for the next holder after the delay; never raises, a lost lock expires.

        `ended` is recorded for the others, even without a slot.
        `used` False: certainly nothing was restarted, so there is no delay and it does not count in the hourly limit.
        """


def boottime_s() -> float:
    """Return CLOCK_BOOTTIME: clock steps do not move it, and it runs during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
