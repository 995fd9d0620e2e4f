"""What the journal knows of one attempt to restart, and what of it counts against budget and breaker.

States, in the order in which an attempt passes them:

    intent ─▶ calling ─▶ verifying ─▶ helped | did_not_help
       │         ├─▶ failed       the hook said that it did nothing, or that it could not
       │         └─▶ uncertain    the watcher died, or the hook's end is not known: it may have acted
       │         └─▶ cancelled    the lock was lost, or the disk failed, while the call was written down
       └─▶ cancelled              given up before the hook was called

`dry_run` is what mode `observe` writes. An attempt that was `uncertain` is never called again: it is
verified, by each new start of the watcher for a day, and ends as `helped` or `did_not_help` or stays what
it is. What the disk would not take waits in memory (pending_writes.py), and is what everybody is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OPEN_STATES = ("intent", "calling", "verifying")
ENDED_STATES = ("helped", "did_not_help", "failed", "uncertain", "cancelled", "dry_run")

_SPENT = ("calling", "verifying", "helped", "did_not_help", "failed", "uncertain")
_OPENS_BREAKER = ("did_not_help", "failed", "uncertain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, as on disk."""

    id: str  # the idempotency key that every hook is told
    target: str
    group: str
    trigger: str
    hook: str  # the hook's name in the configuration
    reason: str
    actor: str
    state: str  # one of OPEN_STATES or ENDED_STATES
    began_t: float  # Unix seconds: when the intent was written
    called_t: float | None = None  # when the hook was first called
    ended_t: float | None = None
    incident_id: str | None = None
    payoff_ratio: float | None = None  # throughput after ÷ before, where both are known
    text: str = ""  # how it stands, or how it ended, in words
    address: str = ""  # of the target, host:port; "" where that is no identity
    before: Mapping[str, Any] | None = (
        None  # verify.Before as JSON holds it: what it was decided on
    )
    gang: Mapping[str, Any] | None = (
        None  # the others that are restarted with it: name → their `before`
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Every target whose hook it calls, the one that asked first."""
        return (self.target, *(self.gang or ()))

    @property
    def acted_t(self) -> float:
        """When it may have touched the server: from then on budget and cooldown count."""
        return self.began_t if self.called_t is None else self.called_t

    def helped_since(self, target: str, t: float) -> bool:
        """Did it cure the target, and end after Unix time `t`? What was asked for until then is done."""
        return self.state == "helped" and target in self.names and (self.ended_t or 0.0) >= t

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def spent(self) -> bool:
        """Does it count against the budget? Whatever may have touched the engine does."""
        return self.state in _SPENT

    @property
    def opens_breaker(self) -> bool:
        """Is it a reason not to try again by ourselves?"""
        return self.state in _OPENS_BREAKER
