"""The record of one incident: what is wrong, since when, why we think so, and how it ended."""

import hashlib
from dataclasses import dataclass
from typing import Any

from vllm_watch.detectors.base import Evidence
from vllm_watch.signals import stored

RESOLUTIONS = ("healthy", "restarted", "target_gone", "superseded")

Key = tuple[str, str | None]  # kind, engine: at most one incident of each is open at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One problem of one engine, or, with `engine` None, of the whole server."""

    id: str
    target: str
    engine: str | None
    kind: str
    cause: str
    severity: str  # "page" | "ticket" | "info"
    summary: str  # one sentence; of an open incident, as of the last look that saw it
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    restart_advised: bool = False
    related: tuple[str, ...] = ()  # ids of incidents that belong to it, oldest first
    opened_t: float  # Unix seconds
    resolved_t: float | None = None  # Unix seconds; None while it is open
    resolution: str | None = None  # one of RESOLUTIONS

    @property
    def key(self) -> Key:
        return self.kind, self.engine


def identity(target: str, engine: str | None, kind: str, opened_t: float) -> str:
    """Return the id of an incident: the same for the same problem, whoever watches and how often.

    It holds only what may stand in a path, a label and a file name.
    """
    what = f"{target}\n{engine}\n{kind}\n{opened_t:.3f}"
    return f"{kind}-{opened_t:.0f}-{hashlib.sha256(what.encode()).hexdigest()[:8]}"


def to_event(incident: Incident, event: str, t: float) -> dict[str, Any]:
    """Return the published form: `event` is "opened", "updated" or "resolved", at Unix time `t`."""
    said: dict[str, Any] = {
        "t": t,
        "event": event,
        "id": incident.id,
        "target": incident.target,
        "engine": incident.engine,
        "kind": incident.kind,
        "cause": incident.cause,
        "severity": incident.severity,
        "summary": incident.summary,
        "evidence": {
            "for": [_plain(each) for each in incident.evidence_for],
            "against": [_plain(each) for each in incident.evidence_against],
        },
        "restart_advised": incident.restart_advised,
    }
    if incident.related:
        said["related"] = list(incident.related)
    if incident.resolution is not None:
        said["resolution"] = incident.resolution
    return said


def export_state(incident: Incident) -> dict[str, Any]:
    """Return the record as plain values; `restore` makes the same record of them."""
    state: dict[str, Any] = {name: getattr(incident, name) for name in _SAID}
    state["related"] = list(incident.related)
    state["evidence_for"] = [_plain(each) for each in incident.evidence_for]
    state["evidence_against"] = [_plain(each) for each in incident.evidence_against]
    return state


def restore(state: stored.Stored) -> Incident:
    """Make the open incident that was kept. Raises one of stored.DAMAGE where it was none."""
    return Incident(
        id=stored.text(state["id"]),
        target=stored.text(state["target"]),
        kind=stored.text(state["kind"]),
        cause=stored.text(state["cause"]),
        severity=stored.text(state["severity"]),
        summary=stored.text(state["summary"]),
        engine=stored.text_or_none(state["engine"]),
        restart_advised=stored.flag(state["restart_advised"]),
        opened_t=stored.number(state["opened_t"]),
        related=stored.texts(state["related"]),
        evidence_for=tuple(_evidence(each) for each in state["evidence_for"]),
        evidence_against=tuple(_evidence(each) for each in state["evidence_against"]),
    )


_SAID = (
    "id", "target", "kind", "cause", "severity", "summary", "engine", "restart_advised", "opened_t",
)  # fmt: skip


def _evidence(state: stored.Stored) -> Evidence:
    return Evidence(
        name=stored.text(state["name"]),
        value=_told(state["value"]),
        unit=stored.text(state["unit"]),
        expected=_told(state["expected"]),
        text=stored.text(state["text"]),
    )


def _told(value: Any) -> float | str | None:
    return value if isinstance(value, str) else stored.number_or_none(value)


def _plain(evidence: Evidence) -> dict[str, Any]:
    return {
        "name": evidence.name,
        "value": _finite(evidence.value),
        "unit": evidence.unit,
        "expected": _finite(evidence.expected),
        "text": evidence.text,
    }


def _finite(value: float | str | None) -> float | str | None:
    """A number that JSON has not (NaN, infinity) is unknown."""
    if isinstance(value, float) and value - value != 0:
        return None
    return value
