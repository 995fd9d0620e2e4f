"""What judging the history of one target found, in little memory, and how its alerts compare with that. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.sources.prometheus_history import Firing, StoredTarget

INCIDENTS_MAX = 1000
"""Kept of one target; the first ones. Weeks of the worst server have some hundreds."""

NEAR_SECONDS = 300.0
"""An alert that begins so long before an incident or ends so long after it is of it: rules have a `for`, and both
look at other moments."""


@dataclass(slots=True)
class Judged:
    """One target's history."""

    target: StoredTarget
    looks: int = 0
    failed: int = 0
    first_t: float | None = None  # Unix seconds
    last_t: float | None = None
    left_out: int = 0  # incidents beyond INCIDENTS_MAX
    incidents: dict[str, Incident] = field(default_factory=dict)  # as they were last, by id
    _gaps: Counter[int] = field(default_factory=Counter)  # seconds between looks

    def add(self, observation: Observation, events: Iterable[IncidentEvent]) -> None:
        """Count one scrape and what came of it."""
        if self.last_t is not None and len(self._gaps) < INCIDENTS_MAX:
            self._gaps[round(observation.t - self.last_t)] += 1
        self.first_t = observation.t if self.first_t is None else self.first_t
        self.last_t = observation.t
        self.looks += 1
        self.failed += observation.scrape.outcome != "ok"
        self.learn(events)

    def learn(self, events: Iterable[IncidentEvent]) -> None:
        """Keep each incident as it was last."""
        for event in events:
            if event.incident.id in self.incidents or len(self.incidents) < INCIDENTS_MAX:
                self.incidents[event.incident.id] = event.incident
            else:
                self.left_out += 1

    @property
    def interval_seconds(self) -> float | None:
        """Between scrapes, mostly."""
        return float(self._gaps.most_common(1)[0][0]) if self._gaps else None


@dataclass(frozen=True, slots=True)
class Found:
    """One incident: where, from when to when (None: it lasts), and for how long no alert fired."""

    target: str
    incident: Incident
    until_t: float | None
    unseen_seconds: float
    alerts: tuple[str, ...]

    @property
    def began_t(self) -> float:
        return self.incident.began_t


@dataclass(frozen=True, slots=True)
class Compared:
    """All incidents, oldest first, and the alerts of these targets, with those that fired at healthy times."""

    found: tuple[Found, ...]
    firings: tuple[Firing, ...]
    needless: tuple[Firing, ...]


def compared(judged: Sequence[Judged], firings: Sequence[Firing]) -> Compared:
    """Lay alerts and incidents beside each other."""
    ours = [each for each in firings if _concerns_any(each, judged)]
    found, needed = [], set()
    for one in judged:
        for incident in one.incidents.values():
            over_t = incident.ended_t or incident.resolved_t
            until_t = over_t or one.last_t or incident.began_t
            near = [
                each for each in ours
                if _concerns(each, one) and each.begin_t <= until_t + NEAR_SECONDS and each.end_t >= incident.began_t - NEAR_SECONDS
            ]  # fmt: skip
            needed |= {id(each) for each in near}
            seen_s = _covered([(each.begin_t, each.end_t) for each in near], incident.began_t, until_t)  # fmt: skip
            names = tuple(dict.fromkeys(each.name for each in near))
            unseen_s = max(0.0, until_t - incident.began_t - seen_s)
            found.append(Found(one.target.name, incident, over_t, unseen_s, names))
    found.sort(key=lambda each: each.began_t)
    needless = tuple(each for each in ours if id(each) not in needed)
    return Compared(tuple(found), tuple(ours), needless)


def _concerns_any(firing: Firing, judged: Sequence[Judged]) -> bool:
    return any(_concerns(firing, one) for one in judged)


def _concerns(firing: Firing, one: Judged) -> bool:
    """Is the alert about this target? One that names no instance and no pod is, if it names its job or vLLM."""
    labels, given = firing.labels, one.target.labels
    for name in ("instance", "pod"):
        if name in labels and name in given:
            return labels[name] == given[name]
    if "job" in labels and "job" in given:
        return labels["job"] == given["job"]
    return "vllm" in firing.name.lower()


def _covered(spans: list[tuple[float, float]], begin_t: float, end_t: float) -> float:
    """How much of a time some of the spans cover (s)."""
    covered, at_t = 0.0, begin_t
    for first_t, last_t in sorted(spans):
        first_t, last_t = max(first_t, at_t), min(last_t, end_t)  # noqa: PLW2901
        if last_t > first_t:
            covered += last_t - first_t
            at_t = last_t
    return covered
