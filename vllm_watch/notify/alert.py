"""Alerts with their stored form, and one phase of one alert for one notifier."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_watch.incidents.incident import (
    Incident,
    IncidentEvent,
    from_published,
    published,
)
from vllm_watch.signals import stored

INCIDENT, RESTART, UNREADABLE = "incident", "restart", "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A report about an incident, a restart step or an unreadable target."""

    incident: Incident
    about: str = INCIDENT  # INCIDENT | RESTART | UNREADABLE
    group: str = ""
    restart: str = ""  # a sentence about the restart for the incident
    silenced: bool = False
    inhibited: bool = False  # another incident is reported instead

    @property
    def id(self) -> str:
        return self.incident.id

    @property
    def severity(self) -> str:
        return self.incident.severity


def to_state(alert: Alert) -> dict[str, Any]:
    """Return the alert as plain values."""
    incident = alert.incident
    event = OPENED if incident.open else RESOLVED
    t = incident.updated_t if incident.resolved_t is None else incident.resolved_t
    return {
        "about": alert.about, "group": alert.group, "restart": alert.restart,
        "opened_t": incident.opened_t, "incident": published(IncidentEvent(event, t, incident)),
    }  # fmt: skip


def from_state(state: Mapping[str, Any]) -> Alert:
    """Return the stored alert. Raises one of stored.DAMAGE."""
    if "incident" not in state:
        state = _of_0_1(state)
    return Alert(
        incident=from_published(state["incident"], stored.number(state["opened_t"])),
        about=stored.text(state["about"]),
        group=stored.text(state["group"]),
        restart=stored.text(state["restart"]),
    )


def _of_0_1(state: Mapping[str, Any]) -> dict[str, Any]:
    ended_t, blank = state["ended_t"], {"name": "", "value": None, "unit": "", "expected": None}
    event = {
        "event": OPENED if ended_t is None else RESOLVED,
        "t": state["t"] if ended_t is None else ended_t,
        "evidence": {"for": [blank | {"text": text} for text in state["evidence"]]},
    }
    return {**state, "opened_t": state["t"], "incident": {**state, **event}}


OPENED, WORSE, CHANGED, REMINDER, RESOLVED, SAID = (
    "opened", "worse", "changed", "reminder", "resolved", "said",
)  # fmt: skip
"""CHANGED: a restart is now advised, or the cause is now known. A restart step has only the phase
SAID."""

DROPPED = "dropped"
"""Message key of a dropped notification. The key of the message that reports the drop is appended
later."""

Key = tuple[str, str, str]  # notifier, alert id, name of the phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """One notification. Times are Unix seconds."""

    notifier: str
    name: str  # such as "reminder 2"
    t: float  # when the phase fell due
    alert: Alert
    sent_t: float | None = None  # None while queued
    message: str | None = None

    @property
    def key(self) -> Key:
        return self.notifier, self.alert.id, self.name

    @property
    def phase(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def dropped(self) -> bool:
        return (self.message or "").startswith(DROPPED)
