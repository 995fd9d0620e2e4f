"""A request to restart a server."""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_watch.restart.process import Process
from vllm_watch.restart.verify import Before
from vllm_watch.state.attempt import Attempt

TRIGGERS = ("incident", "schedule", "manual", "alertmanager")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """A request to restart one target's server, with all its data-parallel engines."""

    target: str
    group: str  # its targets share budget, cooldown and breaker
    trigger: str  # one of TRIGGERS
    reason: str  # a sentence
    asked_t: float
    engine: str | None = None
    incident_id: str | None = None
    kind: str | None = None
    cause: str | None = None
    actor: str = "vllm-watch"  # a token's name, or the watcher
    approved_by: str | None = None
    expires_t: float | None = None
    schedule: str | None = None
    process: Process | None = None  # the process to restart; None if any
    override_reason: str | None = None  # overrides freezes and windows

    @property
    def person(self) -> str | None:
        return self.actor if self.trigger == "manual" else self.approved_by

    @property
    def key(self) -> str:
        """One incident or schedule has one request per target."""
        what = self.incident_id or self.schedule or self.trigger
        return f"{self.target} {self.trigger} {what}"

    def attempt(
        self,
        attempt_id: str,
        state: str,
        hook: str,
        t: float,
        address: str = "",
        befores: Mapping[str, Before] | None = None,
    ) -> Attempt:
        kept = {name: before.to_json() for name, before in (befores or {}).items()}
        return Attempt(
            id=attempt_id, target=self.target, group=self.group, trigger=self.trigger,
            hook=hook, reason=self.reason, actor=self.person or self.actor, state=state,
            began_t=t, incident_id=self.incident_id, address=address,
            before=kept.pop(self.target, None), gang=kept or None,
        )  # fmt: skip
