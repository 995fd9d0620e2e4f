"""What is exported of each target's incidents, and of the watcher's own under its name."""

from vllm_watch.export.board import TargetEntry
from vllm_watch.export.family import Family, Series, by_label
from vllm_watch.export.incidents import SEVERITIES


def _open(entry: TargetEntry) -> Series:
    """One series for each combination of labels: two GPUs may have the same trouble at once."""
    found = entry.incidents.open.values()
    labels = {(each.engine or "", each.kind, each.cause, each.severity) for each in found}
    return [(values, 1) for values in sorted(labels)]


INCIDENT_FAMILIES: tuple[Family, ...] = (
    Family(
        name="vllm_watch_incident_open", kind="gauge", scope="incidents",
        labels=("engine", "kind", "cause", "severity"),
        help="1 while an incident of this kind and cause is open; `engine` is empty for one of the whole server, "
             "`target` is vllm-watch for one that many targets share, "
             f"`severity` is one of {', '.join(SEVERITIES)}.",
        absent="Absent while there is none. A cause that is found out changes the labels.",
        series=_open,
    ),
    Family(
        name="vllm_watch_incidents_total", kind="counter", scope="incidents", labels=("kind",),
        help="Incidents of this kind that were opened, those that have ended included.",
        series=by_label("incidents.opened"),
    ),
)  # fmt: skip
