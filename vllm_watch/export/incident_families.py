"""Metric families of incidents."""

from collections.abc import Callable

from vllm_watch.board.board import TargetEntry
from vllm_watch.export.family import Family, Series, by_label
from vllm_watch.incidents.incident import SEVERITIES, Incident


def _labels_of(incident: Incident) -> tuple[str, ...]:
    return (incident.engine or "", incident.kind, incident.cause, incident.severity)


def _open(entry: TargetEntry) -> Series:
    # Two GPUs may have the same fault, so labels can repeat.
    labels = {_labels_of(each) for each in entry.incidents.open.values()}
    return [(values, 1) for values in sorted(labels)]


def _oldest(entry: TargetEntry, time_of: Callable[[Incident], float]) -> Series:
    oldest: dict[tuple[str, ...], float] = {}
    for each in entry.incidents.open.values():
        labels, t = _labels_of(each), time_of(each)
        oldest[labels] = min(t, oldest.get(labels, t))
    return sorted(oldest.items())


def _advised(entry: TargetEntry) -> Series:
    advised: dict[tuple[str, ...], int] = {}
    for each in entry.incidents.open.values():
        labels = _labels_of(each)
        advised[labels] = max(int(each.restart_advised), advised.get(labels, 0))
    return sorted(advised.items())


def _recovering(entry: TargetEntry) -> Series:
    recovering: dict[tuple[str, ...], int] = {}
    for each in entry.incidents.open.values():
        labels = _labels_of(each)
        recovering[labels] = min(int(each.recovering), recovering.get(labels, 1))
    return sorted(recovering.items())


_LABELS = ("engine", "kind", "cause", "severity")
_NONE_OPEN = "Absent while there is none. A cause that is found out changes the labels."

INCIDENT_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_incident_open", kind="gauge", scope="incidents",
        labels=_LABELS,
        help="1 while an incident of this kind and cause is open; `engine` is empty for one of the whole server, "
             "`target` is vllm-watch for one that many targets share, host:NAME for one of a host's GPUs, "
             f"`severity` is one of {', '.join(SEVERITIES)}.",
        absent=_NONE_OPEN,
        series=_open,
    ),
    Family(
        name="vllm_watch_incident_opened_timestamp_seconds", kind="gauge", scope="incidents", labels=_LABELS,
        help="Unix time at which the incident of vllm_watch_incident_open was opened, even if its cause changed since.",
        absent=_NONE_OPEN, series=lambda entry: _oldest(entry, lambda each: each.opened_t),
    ),
    Family(
        name="vllm_watch_incident_began_timestamp_seconds", kind="gauge", scope="incidents", labels=_LABELS,
        help="Unix time of the first bad scrape of the incident of vllm_watch_incident_open, as the page shows it; "
             "it is before the incident was opened.",
        absent=_NONE_OPEN, series=lambda entry: _oldest(entry, lambda each: each.began_t),
    ),
    Family(
        name="vllm_watch_incident_recovering", kind="gauge", scope="incidents", labels=_LABELS,
        help="1 while the incident of vllm_watch_incident_open recovers: its fault is gone, and it "
             "closes unless the fault returns; else 0.",
        absent=_NONE_OPEN, series=_recovering,
    ),
    Family(
        name="vllm_watch_incident_restart_advised", kind="gauge", scope="incidents", labels=_LABELS,
        help="1 if a restart is known to cure the cause of the incident of vllm_watch_incident_open, else 0.",
        absent=_NONE_OPEN, series=_advised,
    ),
    Family(
        name="vllm_watch_incidents_total", kind="counter", scope="incidents", labels=("kind",),
        help="Incidents of this kind that were opened, including closed ones.",
        series=by_label("incidents.opened"),
    ),
)  # fmt: skip
