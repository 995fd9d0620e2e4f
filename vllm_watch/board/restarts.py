"""The board's records of restarts. The API has the same keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PAST_MAX = 5
"""At most this many past attempts are shown. The journal has all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A refusal by one of the guard's checks."""

    gate: str
    text: str
    until_timestamp_seconds: float | None = None  # None if the refusal does not end by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One restart request and its last decision."""

    trigger: str
    reason: str
    asked_timestamp_seconds: float
    incident_id: str | None = None
    schedule: str | None = None
    approved_by: str | None = None
    expires_timestamp_seconds: float | None = None
    verdict: str | None = None
    gate: str | None = None  # the check that decided
    text: str = "not decided yet"
    until_timestamp_seconds: float | None = None
    gates: tuple[Gate, ...] = ()  # all refusals, in order


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptShown:
    """One restart attempt, current or ended."""

    id: str
    state: str
    trigger: str
    reason: str
    actor: str
    hook: str
    text: str
    began_timestamp_seconds: float
    called_timestamp_seconds: float | None = None
    ended_timestamp_seconds: float | None = None
    incident_id: str | None = None
    payoff_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """An operator's pause of all restarts."""

    actor: str
    reason: str
    until_timestamp_seconds: float | None = None  # None until resumed


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan:
    """One target's restarts."""

    mode: str
    hook: str
    waiting: tuple[Waiting, ...] = ()
    under_way: AttemptShown | None = None
    last: AttemptShown | None = None  # may be a dry run
    past: tuple[AttemptShown, ...] = ()  # last PAST_MAX, newest first
    draining: bool = False
    paused: Paused | None = None
    journal_trouble: str | None = None  # if set, nothing is restarted
    breaker: str | None = None  # why only an operator may retry
    budget_remaining: int | None = None  # of the target's group; None if unknown
    payoff_ratio: float | None = None  # of the last measured restart
    next_scheduled_timestamp_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The exec probes of one server, which a gate answers."""

    liveness_asked_seconds: float | None  # since the last request; None if there was none
    starts: tuple[float, ...] = ()  # Unix seconds when the probing containers started
    scraped_start_t: float | None = None


@dataclass(slots=True)
class RestartCounts:
    """Restart counts since the watcher's start."""

    outcomes: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (trigger, outcome)
    blocked: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RestartState:
    """Restart state of the whole watcher."""

    paused: Paused | None = None
    journal_trouble: str | None = None
    people: bool = False  # True if operators have API tokens
