"""What people may be told of, as it stands now: an incident, a step of a restart, a target that cannot be read. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.incidents.incident import (
    OPENED,
    RESOLVED,
    Incident,
    IncidentEvent,
    from_published,
    published,
)
from vllm_watch.signals import stored

INCIDENT, RESTART, UNREADABLE = "incident", "restart", "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. What is no incident is told in the same form: a step of a restart has the kind `restart` and the
    step as its cause, a target that cannot be read the kind `target_unreadable` and the outcome of its scrapes.
    """

    incident: (
        Incident  # its id is the same for as long as it lasts, also for the next run of the watcher
    )
    about: str = INCIDENT  # INCIDENT | RESTART | UNREADABLE
    group: str = ""  # empty: it is of no group, or of what all targets share
    restart: str = ""  # what there is to say of a restart, in one sentence
    silenced: bool = False  # a person wants to hear no more of it
    inhibited: bool = False  # it is a part of a greater one, which is told instead

    @property
    def id(self) -> str:
        return self.incident.id

    @property
    def severity(self) -> str:
        return self.incident.severity


def to_state(alert: Alert) -> dict[str, Any]:
    """Return the alert as JSON holds it."""
    incident = alert.incident
    event = OPENED if incident.open else RESOLVED
    t = incident.updated_t if incident.resolved_t is None else incident.resolved_t
    return {
        "about": alert.about, "group": alert.group, "restart": alert.restart,
        "opened_t": incident.opened_t, "incident": published(IncidentEvent(event, t, incident)),
    }  # fmt: skip


def from_state(state: Mapping[str, Any]) -> Alert:
    """Return the alert that was kept. Raises one of stored.DAMAGE where it was none."""
    if "incident" not in state:
        state = _of_0_1(state)
    return Alert(
        incident=from_published(state["incident"], stored.number(state["opened_t"])),
        about=stored.text(state["about"]),
        group=stored.text(state["group"]),
        restart=stored.text(state["restart"]),
    )


def _of_0_1(state: Mapping[str, Any]) -> dict[str, Any]:
    """What version 0.1 wrote: else an update would tell again what is open."""
    ended_t, blank = state["ended_t"], {"name": "", "value": None, "unit": "", "expected": None}
    event = {
        "event": OPENED if ended_t is None else RESOLVED,
        "t": state["t"] if ended_t is None else ended_t,
        "evidence": {"for": [blank | {"text": text} for text in state["evidence"]]},
    }
    return {**state, "opened_t": state["t"], "incident": {**state, **event}}
