"""What was told of incidents: which are open, how the last ones ended, and how many there were.

It is told in events (opened, updated, resolved), each with all that is known of the incident; here they
become one record per incident, which everything that shows reads.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_watch.incidents import incident as judged

KINDS = (
    "throughput_collapse", "engine_stalled", "engine_down", "overload", "stale_vram", "gpu_fault",
    "host_memory_growth",
)  # fmt: skip
SEVERITIES = ("page", "ticket", "info")  # the worst first
RESOLVED_MAX = 200  # some hours of a bad day; what is older is in the log

_NO_EVIDENCE: Mapping[str, Any] = {"for": (), "against": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident as it was last told of. Times are Unix seconds."""

    id: str
    target: str
    engine: str | None  # None: the whole server
    kind: str
    cause: str
    severity: str  # one of SEVERITIES
    summary: str
    evidence: Mapping[str, Any]  # "for" and "against": lists of name, value, unit, expected, text
    restart_advised: bool
    related: tuple[str, ...] = ()  # ids of incidents that belong to it
    opened_timestamp_seconds: float | None  # None: it was open before we were told of it
    updated_timestamp_seconds: float  # of the last news: summary and evidence were so then
    resolved_timestamp_seconds: float | None = None  # None while it is open
    resolution: str | None = None  # "healthy" | "restarted" | "target_gone" | "superseded"


@dataclass(slots=True)
class TargetIncidents:
    """One target's: those that are open, by id, and how many were opened, by kind."""

    open: dict[str, Incident] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Incidents:
    """All that are open, and the RESOLVED_MAX that ended last."""

    def __init__(self) -> None:
        self._open: dict[str, Incident] = {}  # by id
        self._resolved: dict[str, Incident] = {}  # by id, in the order of their ends

    def take(self, of: TargetIncidents, event: Mapping[str, Any]) -> Incident:
        """Take one event of a target in; return its incident as it is now."""
        name = event["id"]
        known = self._open.get(name)
        incident = _told(event, known)
        if event["event"] == "resolved":
            of.open.pop(name, None)
            self._open.pop(name, None)
            self._keep(incident)
        else:
            if event["event"] == "opened" and known is None:
                of.opened[incident.kind] = of.opened.get(incident.kind, 0) + 1
            self._resolved.pop(name, None)
            of.open[name] = self._open[name] = incident
        return incident

    def renew(self, of: TargetIncidents, latest: judged.Incident, t: float) -> bool:
        """Let an open incident say what the last look found, of which no event tells; was it news?"""
        known = of.open.get(latest.id)
        if known is None or known.summary == latest.summary:
            return False
        event = judged.to_event(latest, "updated", t)
        renewed = replace(
            known,
            summary=latest.summary,
            evidence=event["evidence"],
            updated_timestamp_seconds=t,
        )
        of.open[latest.id] = self._open[latest.id] = renewed
        return True

    def end(self, of: TargetIncidents, t: float | None, resolution: str) -> list[Incident]:
        """End all that are open of a target, at Unix time `t` (None: when it was last told of)."""
        ended = [
            replace(
                incident,
                resolved_timestamp_seconds=incident.updated_timestamp_seconds if t is None else t,
                resolution=resolution,
                restart_advised=False,
            )
            for incident in of.open.values()
        ]
        of.open.clear()
        for incident in ended:
            self._open.pop(incident.id, None)
            self._keep(incident)
        return ended

    def restore(self, ends: Iterable[tuple[Mapping[str, Any], float | None]]) -> None:
        """Show incidents that ended before we began, oldest end first: their last events, and when they opened."""
        for event, opened_t in ends:
            self._open.pop(event["id"], None)
            self._keep(replace(_told(event, None), opened_timestamp_seconds=opened_t))

    def find(self, name: str) -> Incident | None:
        """The incident of this id; None where there is none, or it ended too long ago."""
        return self._open.get(name) or self._resolved.get(name)

    def listed(self) -> list[Incident]:
        """The open ones as people want them, then those that ended, the last on top."""
        return [*in_order(self._open.values()), *reversed(self._resolved.values())]

    def _keep(self, incident: Incident) -> None:
        self._resolved.pop(incident.id, None)
        self._resolved[incident.id] = incident
        if len(self._resolved) > RESOLVED_MAX:
            del self._resolved[next(iter(self._resolved))]


def as_event(incident: Incident, event: str) -> dict[str, Any]:
    """Return an incident in the form in which it is told, as of its last news or its end."""
    names = ("id", "target", "engine", "kind", "cause", "severity", "summary", "evidence")
    t = incident.resolved_timestamp_seconds or incident.updated_timestamp_seconds
    said = {"t": t, "event": event} | {name: getattr(incident, name) for name in names}
    said["restart_advised"] = incident.restart_advised
    if incident.related:
        said["related"] = list(incident.related)
    if incident.resolution is not None:
        said["resolution"] = incident.resolution
    return said


def in_order(incidents: Iterable[Incident]) -> list[Incident]:
    """What wakes people first, and of that the newest."""
    return sorted(
        incidents,
        key=lambda each: (_rank(each.severity), -(each.opened_timestamp_seconds or 0.0), each.id),
    )


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _told(event: Mapping[str, Any], known: Incident | None) -> Incident:
    """The incident as this event tells it; when it began is from the first that told of it."""
    t: float = event["t"]
    begun = t if event["event"] == "opened" else None
    ended = event["event"] == "resolved"
    return Incident(
        **{name: event[name] for name in ("id", "target", "engine", "kind", "cause", "severity")},
        summary=event["summary"],
        evidence=event.get("evidence") or _NO_EVIDENCE,
        restart_advised=event["restart_advised"],
        related=tuple(event.get("related") or ()),
        opened_timestamp_seconds=known.opened_timestamp_seconds if known else begun,
        updated_timestamp_seconds=t,
        resolved_timestamp_seconds=t if ended else None,
        resolution=event.get("resolution") if ended else None,
    )
