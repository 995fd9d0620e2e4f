"""What is known of restarts: per target the plan (what waits and why not now), what is done, what it brought.

The fields are the keys of the API, where a check of the guard is called a gate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PAST_MAX = 5
"""Attempts shown of each target: what a person looks back on; the journal has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What one of the guard's checks has against a restart."""

    gate: str  # slug
    text: str
    until_timestamp_seconds: float | None = None  # None: not by time alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One request for a restart, and what was last decided about it."""

    trigger: str  # "incident" | "schedule" | "alertmanager"
    reason: str
    asked_timestamp_seconds: float
    incident_id: str | None = None
    schedule: str | None = None
    approved_by: str | None = None
    expires_timestamp_seconds: float | None = None
    verdict: str | None = None  # None: not decided yet
    gate: str | None = None  # the check that decided
    text: str = "not decided yet"
    until_timestamp_seconds: float | None = None
    gates: tuple[Gate, ...] = ()  # all that refuse, in the order in which they are asked


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptShown:
    """One attempt, under way or ended."""

    id: str
    state: str
    trigger: str
    reason: str
    actor: str
    hook: str
    text: str  # what it does now, or how it ended
    began_timestamp_seconds: float
    called_timestamp_seconds: float | None = None
    ended_timestamp_seconds: float | None = None
    incident_id: str | None = None
    payoff_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nothing is restarted, because a person said so."""

    actor: str
    reason: str
    until_timestamp_seconds: float | None = None  # None: until resumed


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan:
    """All of one target."""

    mode: str
    hook: str
    waiting: tuple[Waiting, ...] = ()
    under_way: AttemptShown | None = None
    last: AttemptShown | None = None  # the last that ended, a dry run too
    past: tuple[AttemptShown, ...] = ()  # the last PAST_MAX that ended, the newest first
    draining: bool = False
    paused: Paused | None = None
    journal_trouble: str | None = None  # why nothing can be written down: then nothing is done
    breaker: str | None = None  # why only a person may try again, in words
    budget_remaining: int | None = None  # of its group; None: not known
    payoff_ratio: float | None = None  # of the last restart whose payoff was measured
    next_scheduled_timestamp_seconds: float | None = None


@dataclass(slots=True)
class RestartCounts:
    """Counted since the watcher began."""

    outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)  # trigger, outcome
    blocked: Mapping[str, int] = field(default_factory=dict)  # by blocker


@dataclass(slots=True)
class RestartState:
    """What holds for the whole watcher."""

    paused: Paused | None = None
    journal_trouble: str | None = None
    people: bool = False  # are there tokens, and so ways to change something?
