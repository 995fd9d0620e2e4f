"""Keep open and recently ended incidents, and counts by kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_watch.board.history import Charts
from vllm_watch.incidents.incident import OPENED, Incident, IncidentEvent, in_order
from vllm_watch.story.kinds import KINDS

RESOLVED_MAX = 200  # enough for some hours of a bad day


@dataclass(slots=True)
class TargetIncidents:
    """One target's open incidents by id, and totals by kind."""

    open: dict[str, Incident] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Incidents:
    """The incidents that are open, and at most RESOLVED_MAX that have ended."""

    def __init__(self) -> None:
        self._open: dict[str, Incident] = {}
        self._resolved: dict[str, Incident] = {}  # ordered by end time
        self._charts: dict[str, Charts] = {}

    def take(self, of: TargetIncidents, event: IncidentEvent) -> None:
        incident = event.incident
        if not incident.open:
            of.open.pop(incident.id, None)
            self._open.pop(incident.id, None)
            self.add_resolved([incident])
            return
        if event.event == OPENED and incident.id not in self._open:
            of.opened[incident.kind] = of.opened.get(incident.kind, 0) + 1
        self._resolved.pop(incident.id, None)
        of.open[incident.id] = self._open[incident.id] = incident

    def renew(self, of: TargetIncidents, latest: Incident) -> bool:
        """Update an open incident, and return True if it changed."""
        known = of.open.get(latest.id)
        if known is None or known == latest:
            return False
        of.open[latest.id] = self._open[latest.id] = latest
        return True

    def add_resolved(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            self._open.pop(incident.id, None)
            self._resolved.pop(incident.id, None)
            self._resolved[incident.id] = incident
            if len(self._resolved) > RESOLVED_MAX:
                oldest = next(iter(self._resolved))
                del self._resolved[oldest]
                self._charts.pop(oldest, None)

    def keep_charts(self, name: str, charts: Charts) -> None:
        if name in self._resolved and charts.engines:
            self._charts[name] = charts

    def charts_of(self, name: str) -> Charts | None:
        return self._charts.get(name)

    def find(self, name: str) -> Incident | None:
        return self._open.get(name) or self._resolved.get(name)

    def listed(self) -> list[Incident]:
        """Return open incidents in display order, then ended incidents, newest first."""
        return [*in_order(self._open.values()), *reversed(self._resolved.values())]
