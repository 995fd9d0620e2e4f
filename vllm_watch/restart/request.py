"""What asks for a restart: an incident, a schedule, a person or Alertmanager."""

from dataclasses import dataclass

TRIGGERS = ("incident", "schedule", "manual", "alertmanager")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRequest:
    """One wish to restart the server behind one target, with all its data-parallel engines.

    It is only a wish: `guard.decide` says whether it may be fulfilled.
    """

    target: str
    group: str  # budget, cooldown and breaker belong to it
    trigger: str  # one of TRIGGERS
    reason: str  # one sentence, in words
    asked_t: float  # Unix seconds
    engine: str | None = None  # the engine that an incident speaks of
    incident_id: str | None = None
    kind: str | None = None  # of the incident
    cause: str | None = None
    actor: str = "vllm-watch"  # who asks: a bearer token's name, a user, or the watcher itself
    approved_by: str | None = None  # the person who said yes, where one was asked
    expires_t: float | None = None  # Unix seconds: after this it is not wanted any more
    schedule: str | None = None  # the name of the schedule that asks
    override_reason: str | None = None  # why a freeze or a closed window does not hold this person

    @property
    def person(self) -> str | None:
        """The named person who stands behind this request; None where nobody does."""
        return self.actor if self.trigger == "manual" else self.approved_by
