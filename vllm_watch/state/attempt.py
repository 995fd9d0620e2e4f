"""One attempt to restart, as journaled, and its weight for budget and breaker.

States, in order:

    intent ─▶ calling ─▶ verifying ─▶ helped | did_not_help
       │         ├─▶ failed       the hook did nothing
       │         └─▶ uncertain    the watcher died, or the hook's end is unknown: it may have acted
       │         └─▶ cancelled    the lock was lost, or the disk failed, while the call was written
       └─▶ cancelled              given up before the hook was called

`dry_run` is written in mode `observe`. An `uncertain` attempt is never called again: each new start of the watcher
verifies it for a day, to `helped` or `did_not_help` if possible. Attempts that the disk rejects wait in memory
(pending_writes.py), and are shown from there.
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

    id: str  # idempotency key of all its hook calls
    target: str
    group: str
    trigger: str
    hook: str  # name in the configuration
    reason: str
    actor: str
    state: str  # one of OPEN_STATES or ENDED_STATES
    began_t: float  # Unix seconds: intent written
    called_t: float | None = None  # when the hook was first called
    ended_t: float | None = None
    incident_id: str | None = None
    payoff_ratio: float | None = None  # throughput after ÷ before, if known
    text: str = ""  # progress or result
    address: str = ""  # of the target, host:port; "" if not an identity
    before: Mapping[str, Any] | None = None  # verify.Before in JSON: state decided on
    gang: Mapping[str, Any] | None = None  # members restarted with it: name → their `before`

    @property
    def names(self) -> tuple[str, ...]:
        """All targets whose hooks it calls, its own first."""
        return (self.target, *(self.gang or ()))

    @property
    def acted_t(self) -> float:
        """When it may have touched the server; budget and cooldown count from then."""
        return self.began_t if self.called_t is None else self.called_t

    def helped_since(self, target: str, t: float) -> bool:
        """Return True if it cured the target and ended after `t`: requests made until then are done."""
        return self.state == "helped" and target in self.names and (self.ended_t or 0.0) >= t

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def spent(self) -> bool:
        """True if it counts against the budget: it may have touched the engine."""
        return self.state in _SPENT

    @property
    def opens_breaker(self) -> bool:
        """True if vllm-watch must not try again by itself."""
        return self.state in _OPENS_BREAKER
