"""Collect the incidents in servers' histories, and compare them with alerts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vllm_watch.incidents.incident import Incident, IncidentEvent
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import LOOPBACK
from vllm_watch.sources.prometheus_history import Firing, Labels, StoredTarget

_IDENTITY = ("job", "instance", "namespace", "group", "target")

INCIDENTS_MAX = 1000
"""At most this many incidents per target are kept. The worst servers have some hundred incidents in weeks."""

NEAR_SECONDS = 300.0
"""An incident and its alerts are at most this far apart. Alert rules wait for their `for` duration, and are evaluated between scrapes."""


@dataclass(slots=True)
class Judged:
    """One target's history."""

    target: StoredTarget
    looks: int = 0
    failed: int = 0
    first_t: float | None = None
    last_t: float | None = None
    left_out: int = 0  # events of incidents beyond INCIDENTS_MAX
    incidents: dict[str, Incident] = field(default_factory=dict)  # id → last state
    _gaps: Counter[int] = field(default_factory=Counter)  # seconds between scrapes

    def add(self, observation: Observation, events: Iterable[IncidentEvent]) -> None:
        if self.last_t is not None and len(self._gaps) < INCIDENTS_MAX:
            self._gaps[round(observation.t - self.last_t)] += 1
        self.first_t = observation.t if self.first_t is None else self.first_t
        self.last_t = observation.t
        self.looks += 1
        self.failed += observation.scrape.outcome != "ok"
        self.learn(events)

    def learn(self, events: Iterable[IncidentEvent]) -> None:
        for event in events:
            if event.incident.id in self.incidents or len(self.incidents) < INCIDENTS_MAX:
                self.incidents[event.incident.id] = event.incident
            else:
                self.left_out += 1

    @property
    def interval_seconds(self) -> float | None:
        return float(self._gaps.most_common(1)[0][0]) if self._gaps else None


@dataclass(frozen=True, slots=True)
class Found:
    """One incident. `until_t` is None while it is open. `unseen_seconds` is the time without an alert."""

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
    """Incidents and alerts. `needless` alerts fired without an incident."""

    found: tuple[Found, ...]
    firings: tuple[Firing, ...]
    needless: tuple[Firing, ...]


def compared(
    judged: Sequence[Judged], firings: Sequence[Firing], watched: Sequence[Labels]
) -> Compared:
    """Match alerts to incidents. `watched` has the labels of vllm_watch_target_info."""
    of_target = [(one, _about(one.target.labels, firings, watched)) for one in judged]
    concerned = {id(each) for _, its in of_target for each in its}
    found, needed = [], set()
    for one, its in of_target:
        for incident in one.incidents.values():
            over_t = incident.ended_t or incident.resolved_t
            until_t = over_t or one.last_t or incident.began_t
            near = [
                each for each in its
                if each.begin_t <= until_t + NEAR_SECONDS and each.end_t >= incident.began_t - NEAR_SECONDS
            ]  # fmt: skip
            needed |= {id(each) for each in near}
            seen_s = _covered([(each.begin_t, each.end_t) for each in near], incident.began_t, until_t)  # fmt: skip
            names = tuple(dict.fromkeys(each.name for each in near))
            unseen_s = max(0.0, until_t - incident.began_t - seen_s)
            found.append(Found(one.target.name, incident, over_t, unseen_s, names))
    found.sort(key=lambda each: each.began_t)
    ours = tuple(each for each in firings if id(each) in concerned)
    return Compared(tuple(found), ours, tuple(each for each in ours if id(each) not in needed))


def _about(given: Labels, firings: Sequence[Firing], watched: Sequence[Labels]) -> list[Firing]:
    its = [info for info in watched if _is_at(given, info)]
    return [
        each for each in firings
        if _concerns(each, given) or any(_names(each.labels, info) for info in its)
    ]  # fmt: skip


def _concerns(firing: Firing, given: Labels) -> bool:
    labels = firing.labels
    for name in ("instance", "pod"):
        if name in labels and name in given:
            return labels[name] == given[name]
    if "job" in labels and "job" in given:
        return labels["job"] == given["job"]
    return "vllm" in firing.name.lower()


def _names(labels: Labels, info: Labels) -> bool:
    if "target" not in labels and ("job" not in labels or "instance" in labels):
        return False  # an alert about the watcher or other software
    return all(info.get(name, "") == labels[name] for name in _IDENTITY if name in labels)


def _is_at(given: Labels, info: Labels) -> bool:
    """Return True if both label sets name the same server. A loopback address means the watcher's host."""
    if info.get("pod") and "pod" in given:
        return all(info.get(name) == given[name] for name in ("pod", "namespace") if name in given)
    host, port = _host_and_port(info.get("address", ""))
    if host == "localhost":
        host, _ = _host_and_port(info.get("instance", ""))
    return (host, port) == _host_and_port(given.get("instance", ""))


def _host_and_port(instance: str) -> tuple[str, str]:
    host, _, port = instance.rpartition(":")
    return ("localhost" if host.strip("[]") in LOOPBACK else host.lower()), port


def _covered(spans: list[tuple[float, float]], begin_t: float, end_t: float) -> float:
    covered, at_t = 0.0, begin_t
    for first_t, last_t in sorted(spans):
        first_t, last_t = max(first_t, at_t), min(last_t, end_t)  # noqa: PLW2901
        if last_t > first_t:
            covered += last_t - first_t
            at_t = last_t
    return covered
