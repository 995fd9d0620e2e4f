"""A restart request, from an incident, a schedule, a person or Alertmanager."""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_watch.restart.process import Process
from vllm_watch.restart.verify import Before
from vllm_watch.state.attempt import Attempt

TRIGGERS = ("incident", "schedule", "manual", "alertmanager")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """A request to restart the server of one target, with all its data-parallel engines; `guard.decide` decides."""

    target: str
    group: str  # that budget, cooldown and breaker are shared by
    trigger: str  # one of TRIGGERS
    reason: str  # one sentence
    asked_t: float  # Unix seconds
    engine: str | None = None  # the engine of the incident
    incident_id: str | None = None
    kind: str | None = None  # of the incident
    cause: str | None = None
    actor: str = "vllm-watch"  # a bearer token's name, or the watcher itself
    approved_by: str | None = None  # a person
    expires_t: float | None = None  # Unix seconds; void from then on
    schedule: str | None = None  # name
    process: Process | None = None  # to restart; None: the one that the incident was found in
    override_reason: str | None = None  # the person's, to override freezes and windows

    @property
    def person(self) -> str | None:
        """The person that made or approved the request, or None."""
        return self.actor if self.trigger == "manual" else self.approved_by

    @property
    def key(self) -> str:
        """Identity: requests of one incident or schedule for one target are one."""
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
        """Return the attempt that begins at Unix time `t`; `befores`: of the target and its gang members."""
        kept = {name: before.to_json() for name, before in (befores or {}).items()}
        return Attempt(
            id=attempt_id, target=self.target, group=self.group, trigger=self.trigger,
            hook=hook, reason=self.reason, actor=self.person or self.actor, state=state,
            began_t=t, incident_id=self.incident_id, address=address,
            before=kept.pop(self.target, None), gang=kept or None,
        )  # fmt: skip
