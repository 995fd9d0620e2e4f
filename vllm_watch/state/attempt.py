"""One attempt to restart, as stored in the journal.

The states in order are `intent`, `calling`, `verifying`, and then `helped` or `did_not_help`.
These states also end an attempt:

`failed`: the hook did nothing.
`uncertain`: the watcher died, or the end of the hook is unknown. The hooks are never called again.
`cancelled`: the hook was not called.
`dry_run`: the mode is `observe`.
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
    """One attempt."""

    id: str  # idempotency key of all its hook calls
    target: str
    group: str
    trigger: str
    hook: str  # name in the configuration
    reason: str
    actor: str
    state: str
    began_t: float  # Unix seconds; intent written
    called_t: float | None = None  # when the hook was first called
    ended_t: float | None = None
    incident_id: str | None = None
    payoff_ratio: float | None = None  # gain as a share of a fresh engine's throughput, if known
    text: str = ""
    address: str = ""  # host:port, or "" if none identifies the target
    before: Mapping[str, Any] | None = None  # verify.Before as JSON
    gang: Mapping[str, Any] | None = None  # other members: name → `before`

    @property
    def names(self) -> tuple[str, ...]:
        """All targets to restart, beginning with `target`."""
        return (self.target, *(self.gang or ()))

    @property
    def acted_t(self) -> float:
        """Time of the first hook call, or of the intent if no hook was called. Budget and cooldown begin then."""
        return self.began_t if self.called_t is None else self.called_t

    def helped_since(self, target: str, t: float) -> bool:
        return self.state == "helped" and target in self.names and (self.ended_t or 0.0) >= t

    def made_for(self, target: str, reason: str) -> bool:
        """Return True if this attempt, or dry run, carried out or carries out such a request."""
        same = (self.target, self.reason) == (target, reason)
        return same and (self.spent or self.open or self.state == "dry_run")

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def spent(self) -> bool:
        return self.state in _SPENT

    @property
    def opens_breaker(self) -> bool:
        return self.state in _OPENS_BREAKER
