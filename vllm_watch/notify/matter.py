"""What people may be told of, as it stands now: an incident, a step of a restart, a target nobody can read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

INCIDENT, RESTART, UNREADABLE = "incident", "restart", "unreadable"

SEVERITIES = ("info", "ticket", "page")
"""The worst last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """One matter. Its id is the same for as long as it lasts, also for the next run of the watcher."""

    id: str
    about: str  # INCIDENT | RESTART | UNREADABLE
    t: float  # Unix seconds: since when
    target: str
    group: str = ""  # empty: it is of no group, or of what all targets share
    engine: str | None = None  # None: the whole server
    kind: str  # of the incident; "restart", "target_unreadable"
    cause: str  # of the incident; the step of the restart; how the target does not answer
    severity: str  # one of SEVERITIES
    summary: str  # one sentence
    evidence: tuple[str, ...] = ()
    restart: str = ""  # what there is to say of a restart, in one sentence
    restart_advised: bool = False
    ended_t: float | None = None  # Unix seconds; None while it lasts
    resolution: str | None = None  # how it ended
    silenced: bool = False  # a person wants to hear no more of it
    held: bool = False  # it is a part of a greater one, which is told instead


def rank(severity: str) -> int:
    """Return how bad it is; what is not known is no worse than info."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else 0


def to_state(matter: Matter) -> dict[str, Any]:
    """Return the matter as JSON holds it."""
    return asdict(matter)


def from_state(state: Mapping[str, Any]) -> Matter:
    """Return the matter that was kept. Raises TypeError, ValueError or KeyError where it was none."""
    known = {field.name for field in fields(Matter)}
    found = {name: value for name, value in state.items() if name in known}
    texts = ("id", "about", "target", "group", "kind", "cause", "severity", "summary", "restart")
    if not all(isinstance(found[name], str) for name in texts):
        raise TypeError("a text is missing")
    evidence = tuple(str(each) for each in found.pop("evidence"))
    return Matter(**(found | {"t": float(found["t"]), "evidence": evidence}))
