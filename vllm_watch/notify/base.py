"""Notifiers send one message once and report. policy.py decides recipients, batches.py groups, delivery.py retries."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from vllm_watch.clients.signed_post import NewSession, new_session
from vllm_watch.notify.words import Message

SENT, UNSENT, UNSURE, REFUSED = "sent", "unsent", "unsure", "refused"
"""Accepted; surely not; perhaps; refused for good."""

FAILED, DROPPED = "failed", "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Services that notifiers need."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    session: NewSession = new_session
    unix_time: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One try's outcome."""

    outcome: str
    text: str  # no secrets
    retry_after_seconds: float = 0.0


class Report(NamedTuple):
    """One update of NotifierHealth."""

    outcome: str  # SENT | FAILED (a try) | DROPPED (notifications) | "" (the queue changed)
    number: int  # tries or notifications
    queue: int
    because: str | None  # no secrets
    t: float  # Unix


Tell = Callable[[Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of a configuration."""

    ok: bool
    text: str
    remedy: str | None = None


class Notifier(Protocol):
    """One channel."""

    async def send(self, message: Message) -> Sent:
        """Send it within timeout_seconds. Raises nothing but CancelledError."""

    def check(self) -> list[Finding]:
        """Check files, variables and libraries without sending."""
