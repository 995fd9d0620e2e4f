"""The contract of every lock: at most N holders at once, and a holder that cannot renew stops before it acts.

A holder may begin something for one TTL after it last wrote, by its own clock, counted from before it
wrote. Others may have its slot after three: the second is for a holder that is paused between its last
look at the clock and the act, the third for the act to end in. So no more than N act at once as long as
no pause and no act is longer than a TTL. Other people's leases are judged by when they were last seen to
change, never by comparing clocks.
"""

import socket
import time
from dataclasses import dataclass
from typing import Protocol

from vllm_watch.state.attempt import Attempt

HOST = socket.gethostname()
"""Whose `localhost` is meant where a lock is shared by several hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What asking for the lock gave."""

    held: bool | None  # None: it could not be asked, which is never a yes
    text: str  # in words: who holds it, since when, until when
    others: tuple[Attempt, ...] = ()  # what is known there of the attempts of all who share it


class Lock(Protocol):
    """One of N slots of one named lock."""

    ttl_seconds: float

    async def acquire(self, holder: str, attempt_id: str, attempt: Attempt | None = None) -> Held:
        """Take a slot, or say who has it. Taking it twice under one attempt id is taking it once.

        `attempt` is put down for the others with the slot, where the kind of lock can (past.py).
        """

    async def renew(self, attempt: Attempt | None = None) -> Held:
        """Prolong what is held, and put down how the attempt stands.

        `held` other than True: stop before the next step that acts.
        """

    def still_ours(self) -> bool:
        """Is the lease surely ours at this moment, without asking anybody?"""

    async def release(
        self, delay_seconds: float = 0.0, *, used: bool = True, ended: Attempt | None = None
    ) -> None:
        """Give it back after the delay (the next one waits that long); never raises, a lost lock expires.

        `ended` is put down for the others, also where no slot is held any more.
        `used` is False where surely nothing was restarted under it: then nobody waits, and it counts
        for no hour.
        """


def boottime_s() -> float:
    """Return this host's clock that no step moves and that goes on during a suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
