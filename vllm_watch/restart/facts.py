"""The input of the guard (guard.py): a request, and the facts about its target.

None means unknown, which never permits a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from vllm_watch.board.restarts import Paused
from vllm_watch.incidents.incident import Incident
from vllm_watch.restart.verify import Before, Process
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
        self, attempt_id: str, state: str, hook: str, t: float, address: str = "",
        befores: Mapping[str, Before] | None = None,
    ) -> Attempt:  # fmt: skip
        kept = {name: before.to_json() for name, before in (befores or {}).items()}
        return Attempt(
            id=attempt_id, target=self.target, group=self.group, trigger=self.trigger,
            hook=hook, reason=self.reason, actor=self.person or self.actor, state=state,
            began_t=t, incident_id=self.incident_id, address=address,
            before=kept.pop(self.target, None), gang=kept or None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Health of the target's group, counted in engines."""

    healthy: int  # without the target's engines
    total: int  # including the target's engines
    unknown: int = 0  # no recent scrape; counts as not healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a hook, blocker or lock."""

    name: str
    allows: bool | None  # None if not answered
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about one target at one moment. Texts are reasons against a restart. An answer is None until it is asked for."""

    t: float  # Unix seconds
    state: str | None  # of the server's worst engine
    attempts: tuple[Attempt, ...] | None  # of the group, oldest first; None if unreadable
    busy: str | None = None  # id of the attempt under way
    breaker_reset_t: float = 0.0
    journal_refusal: str | None = None
    pause: Paused | None = None
    incident: Incident | None = None
    stale: str | None = "it was not scraped"
    replaced: str | None = None
    condition: str | None = None
    revoked: str | None = None
    silenced: bool = False
    startup_seconds: float | None = None
    start_failure: str | None = None
    peers: Peers | None = None
    version_first_t: float | None = None  # when this version of the watcher first ran
    hook: Answer | None = None
    blockers: tuple[Answer, ...] | None = None
    gang: tuple[Answer, ...] | None = ()  # answers of the other members
    lock: Answer | None = None
    asker: str | None = None  # gang member that restarts this target along with itself
