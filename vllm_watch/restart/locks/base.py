"""The contract of locks: at most N holders, and a holder that cannot renew stops before it acts.

A holder may begin within one TTL after its last write, counted from before it by its own clock. Others take its slot after three: the
second for a suspension between clock check and action, the third for the action. So no more than N act while no pause and no action
exceeds a TTL. Others' leases are judged by when they were last seen to change, never by comparing clocks."""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from vllm_watch.state.attempt import Attempt

HOST = socket.gethostname()
"""Owner of `localhost` addresses in a shared lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The lock's answer."""

    held: bool | None  # None: no answer, never a yes
    text: str
    others: tuple[Attempt, ...] = ()


class Lock(Protocol):
    """One of N slots of one named lock."""

    ttl_seconds: float

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        """Idempotent per attempt id; `attempt` is recorded for others if the kind can (past.py)."""

    async def renew(self, attempt: Attempt | None = None) -> Held:
        """Extend it; if `held` is not True, stop before the next acting step."""

    def still_ours(self) -> bool:
        """True if certain, without I/O."""

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        """Never raises: a lost lock expires. `ended` is recorded even without a slot. `used` False: nothing was restarted, so no delay, and not
        counted hourly."""


def boottime_s() -> float:
    """CLOCK_BOOTTIME: unmoved by clock steps, runs during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
