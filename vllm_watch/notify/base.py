"""The contract of every kind of notifier: it sends one message, once, and says honestly how that ended.

Whom it tells of what, what is one message, and when it is tried again is decided elsewhere (policy.py,
batches.py, delivery.py).
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.notify.words import Message

SENT, UNSENT, UNSURE, REFUSED = "sent", "unsent", "unsure", "refused"
"""It was taken; surely nothing was sent; it may have been taken; this message, as it is, will never be."""

FAILED, DROPPED = "failed", "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What notifiers need of the watcher, beside their settings."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: NewSession = new_session
    unix_time: Callable[[], float] = time.time  # for timestamps that others read


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """How one try ended."""

    outcome: str  # SENT | UNSENT | UNSURE | REFUSED
    text: str  # one sentence, without secrets
    retry_after_seconds: float = 0.0  # what the receiver asked for


class Report(NamedTuple):
    """How a notifier does, as NotifierHealth counts it."""

    outcome: (
        str  # SENT | FAILED (a try) | DROPPED (notifications) | "" (only the queue has changed)
    )
    number: int  # of tries, or of notifications
    queue: int
    because: str | None  # of a failure, without secrets
    t: float  # Unix seconds


Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is right or wrong with a notifier as it is configured."""

    ok: bool
    text: str
    remedy: str | None = None


class Notifier(Protocol):
    """Sends messages in one way."""

    async def send(self, message: Message) -> Sent:
        """Send it. Never raises but CancelledError, and ends within the notifier's timeout_seconds."""

    def check(self) -> list[Finding]:
        """Look at what it needs on this machine (files, variables, libraries); nothing is sent."""
