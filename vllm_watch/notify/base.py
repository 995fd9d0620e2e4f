"""The contract of every kind of notifier: it sends one message, once, and says honestly how that ended.

Whom it tells of what, what is one message, and when it is tried again is not its matter (policy.py,
batches.py, courier.py).
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.notify.words import Message

SENT, UNSENT, UNSURE, REFUSED = "sent", "unsent", "unsure", "refused"
"""It was taken; surely nothing was sent; it may have been taken; this message, as it is, will never be."""


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
    again_seconds: float = 0.0  # what the receiver asked for


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

    def look(self) -> list[Finding]:
        """Look at what it needs on this machine (files, variables, libraries); nothing is sent."""

    async def close(self) -> None:
        """Let go of what it holds; ends at once."""
