"""The record of one incident."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, TypeVar

from vllm_watch.detectors.base import Evidence, Verdict
from vllm_watch.incidents import recurrence, way
from vllm_watch.incidents.recurrence import Recurring
from vllm_watch.incidents.way import Step
from vllm_watch.signals import stored
from vllm_watch.story.base import ADVISED_AFTER

SEVERITIES = ("page", "ticket", "info")
"""Worst first."""

OPENED, UPDATED, RESOLVED = "opened", "updated", "resolved"

ACTIVE, RECOVERING = "active", "recovering"

Key = tuple[str, str | None]

Trouble = tuple[str, str | None, str]  # kind, engine, family of causes


@dataclass(frozen=True, slots=True)
class Worst:
    """The main evidence at an incident's worst moment."""

    t: float  # Unix seconds
    measure: float
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One problem of an engine, or of the whole server (`engine` None). Times are Unix seconds."""

    id: str
    target: str
    engine: str | None
    kind: str
    cause: str
    family: str = ""  # family of causes (story.base.Cause)
    severity: str
    summary: str
    meanwhile: str = ""  # another finding that this incident explains
    stacks: str = ""
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    restart_advised: bool = False
    concerns: tuple[str, ...] = ()  # targets that a host's incident affects
    restart_targets: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    opened_t: float
    updated_t: float  # of summary and evidence
    began_t: float  # first bad poll
    ended_t: float | None = None  # first good poll
    closes_t: float | None = None  # expected end if no finding returns
    phase: str = ACTIVE  # ACTIVE | RECOVERING
    firing: bool = True
    times: int = 1  # occurrences, each within a day of the one before
    recurring: Recurring | None = None
    worst: Worst | None = None
    requests_lost: int | None = None  # None if unknown
    resolved_t: float | None = None
    way: tuple[Step, ...] = ()
    resolution: str | None = None  # "healthy" | "restarted" | "target_gone" | "superseded"

    @property
    def key(self) -> Key:
        return self.kind, self.engine

    @property
    def trouble(self) -> Trouble:
        return self.kind, self.engine, self.family

    @property
    def open(self) -> bool:
        return self.resolved_t is None

    @property
    def recovering(self) -> bool:
        return self.open and self.phase == RECOVERING

    @property
    def hangs(self) -> bool:
        """Return True if thread stacks may explain the incident."""
        return self.kind == "engine_stalled" or self.cause == "api_hang"

    @property
    def texts(self) -> list[str]:
        return [self.stacks, *(each.text for each in self.evidence_for)]

    @property
    def advised_after_s(self) -> float | None:
        waits = (each.value for each in self.evidence_against if each.name == ADVISED_AFTER)
        return next((value for value in waits if isinstance(value, float)), None)

    def advises_restart_of(self, target: str) -> bool:
        return self.restart_advised and (target == self.target or target in self.restart_targets)


@dataclass(frozen=True, slots=True)
class IncidentEvent:
    """The opening or end of an incident, or a change of its cause, severity or advice."""

    event: str  # OPENED | UPDATED | RESOLVED
    t: float  # Unix seconds
    incident: Incident
    before: Incident | None = None


AnyIncident = TypeVar("AnyIncident", bound=Incident)


def told(verdict: Verdict) -> dict[str, Any]:
    """Return the fields, except the severity, that an incident takes from its verdict."""
    return {name: getattr(verdict, name) for name in _OF_VERDICT}


_OF_VERDICT = (
    "cause", "summary", "evidence_for", "evidence_against", "restart_advised", "concerns", "restart_targets",
)  # fmt: skip


def ended(incident: Incident, t: float, resolution: str) -> Incident:
    """Return the incident as ended."""
    over_t = t if incident.ended_t is None else incident.ended_t
    return replace(
        incident, resolved_t=t, resolution=resolution, restart_advised=False, restart_targets=(),
        firing=False, ended_t=over_t, closes_t=None,
    )  # fmt: skip


def stepped(incident: Incident, t: float, event: str, *changes: str) -> Incident:
    """Return the incident with its current state added to its history (`way`)."""
    return replace(incident, way=way.extended(incident, t, event, *changes))


def identity(target: str, engine: str | None, kind: str, opened_t: float) -> str:
    """Return an ID that is valid in paths and labels, and the same in every watcher."""
    what = f"{target}\n{engine}\n{kind}\n{opened_t:.3f}"
    return f"{kind}-{opened_t:.0f}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"


def in_order(incidents: Iterable[AnyIncident]) -> list[AnyIncident]:
    """Sort active incidents before recovering ones, then by severity, then newest first."""
    return sorted(
        incidents,
        key=lambda each: (each.recovering, severity_rank(each.severity), -each.opened_t, each.id),
    )


def severity_rank(severity: str) -> int:
    """Return 0 for the worst severity. Unknown ones rank last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def published(event: IncidentEvent) -> dict[str, Any]:
    """Return the event in its published form."""
    incident = event.incident
    said: dict[str, Any] = {"t": event.t, "event": event.event}
    said |= {name: getattr(incident, name) for name in _PUBLISHED}
    said |= {
        "evidence": plain_evidence(incident),
        "restart_advised": incident.restart_advised,
        "phase": incident.phase,
        "began": incident.began_t,
        "ended": incident.ended_t,
        "worst": plain_worst(incident.worst),
        "requests_lost": incident.requests_lost,
    }
    more: dict[str, Any] = {
        "times": incident.times if incident.times > 1 else None,
        "recurring": recurrence.plain(incident.recurring),
    }
    more |= {name: list(getattr(incident, name)) for name in _LISTS}
    more |= {"stacks": incident.stacks, "resolution": incident.resolution}
    return said | {name: value for name, value in more.items() if value}


def from_published(said: stored.Stored, opened_t: float | None) -> Incident:
    """Make an incident from a published event. `opened_t` is None if no earlier event is known."""
    t = stored.number(said["t"])
    over = said["event"] == RESOLVED
    first_t = t if opened_t is None else opened_t
    began_t = stored.number_or_none(said.get("began"))
    return Incident(
        **_shared(said, _SAID),
        opened_t=first_t,
        updated_t=t,
        began_t=first_t if began_t is None else began_t,
        ended_t=stored.number_or_none(said.get("ended")),
        resolved_t=t if over else None,
        resolution=stored.text_or_none(said.get("resolution")),
        firing=not over,
    )


def export_state(incident: Incident) -> dict[str, Any]:
    """Return an open incident as plain values."""
    state: dict[str, Any] = {name: getattr(incident, name) for name in _KEPT}
    state |= {name: list(getattr(incident, name)) for name in _LISTS}
    state["evidence"] = plain_evidence(incident)
    state["worst"] = plain_worst(incident.worst)
    state["recurring"] = recurrence.plain(incident.recurring)
    state["way"] = way.plain(incident.way)
    return state


def restore(state: stored.Stored) -> Incident:
    """Restore an open incident."""
    return Incident(**_shared(state, tuple(_KEPT)))


_TEXTS = ("id", "target", "kind", "cause", "severity", "summary")
_PUBLISHED = ("id", "target", "engine", "kind", "cause", "severity", "summary")
_LISTS = ("concerns", "restart_targets", "related")
_LATER = ("phase", "stacks", "times", "requests_lost", "family")
"""Fields that states or events of older releases lack."""

_SAID = (*_TEXTS, "engine", "restart_advised", *_LATER[:-1])
_KEPT: stored.Fields = {
    **dict.fromkeys(_TEXTS, stored.text),
    "engine": stored.text_or_none,
    "restart_advised": stored.flag,
    **dict.fromkeys(("opened_t", "updated_t", "began_t"), stored.number),
    **dict.fromkeys(("ended_t", "closes_t"), stored.number_or_none),
    **dict.fromkeys(("phase", "meanwhile", "stacks", "family"), stored.text),
    "times": stored.count,
    "firing": stored.flag,
    "requests_lost": lambda count: None if count is None else stored.count(count),
}


def _shared(state: stored.Stored, names: Sequence[str]) -> dict[str, Any]:
    evidence = {} if state.get("evidence") is None else state["evidence"]
    known = [name for name in names if name in state or name not in _LATER]
    return {name: _KEPT[name](state[name]) for name in known} | {
        "evidence_for": tuple(_evidence(each) for each in evidence.get("for", ())),
        "evidence_against": tuple(_evidence(each) for each in evidence.get("against", ())),
        **{name: stored.texts(state.get(name, ())) for name in _LISTS},
        "recurring": recurrence.from_plain(state.get("recurring")),
        "way": way.from_plain(state.get("way", ())),
        "worst": _worst(state.get("worst")),
    }


def plain_evidence(incident: Incident) -> dict[str, list[dict[str, Any]]]:
    """Return the evidence in its published form."""
    return {
        "for": [_plain(each) for each in incident.evidence_for],
        "against": [_plain(each) for each in incident.evidence_against],
    }


def plain_worst(worst: Worst | None) -> dict[str, Any] | None:
    """Return the worst evidence, with its time, in its published form."""
    if worst is None:
        return None
    return {"t": worst.t, "measure": _finite(worst.measure), "evidence": _plain(worst.evidence)}


def _worst(state: stored.Stored | None) -> Worst | None:
    if state is None:
        return None
    return Worst(
        stored.number(state["t"]), stored.number(state["measure"]), _evidence(state["evidence"])
    )


def _evidence(state: stored.Stored) -> Evidence:
    return Evidence(**stored.checked(state, _EVIDENCE))


def _value(value: Any) -> float | str | None:
    return value if isinstance(value, str) else stored.number_or_none(value)


_EVIDENCE: stored.Fields = {
    **dict.fromkeys(("name", "unit", "text"), stored.text),
    **dict.fromkeys(("value", "expected"), _value),
}


def _plain(evidence: Evidence) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(evidence).items()}


def _finite(value: float | str | None) -> float | str | None:
    return None if isinstance(value, float) and not isfinite(value) else value
