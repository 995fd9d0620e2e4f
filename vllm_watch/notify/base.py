"""The contract of notifiers: send one message once, and report the outcome."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.errors import Finding
from vllm_watch.notify.words import Message

SENT, UNSENT, UNSURE, REFUSED = "sent", "unsent", "unsure", "refused"
"""SENT: accepted. UNSENT: certainly not sent. UNSURE: perhaps accepted. REFUSED: rejected for its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Services that notifiers use."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: NewSession = new_session
    unix_time: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The outcome of one try."""

    outcome: str
    text: str  # without secrets
    retry_after_seconds: float = 0.0


class Notifier(Protocol):
    """Sends messages over one channel."""

    async def send(self, message: Message) -> Sent:
        """Send the message within timeout_seconds. Raises only CancelledError."""

    def check(self) -> list[Finding]:
        """Check files, variables and libraries without sending."""
