"""Open incidents as tables: one row for each trouble however many have it, and one for each that has it."""

from grafana_foundation_sdk.models import units

from . import links, promql
from .layout import Panel
from .promql import GROUP
from .runbooks import address, runbook
from .style import SEVERITY_WORDS, YES_NO
from .tables import Column, filled

_PAGE = {
    "title": "What it is, and what to do",
    "url": address("detectors/${__data.fields.Kind}.md"),
}


def _severity(expr: str) -> Column:
    return Column(title="Severity", expr=expr, said=SEVERITY_WORDS, width=90)


def _kind() -> list[Column]:
    return [
        Column(title="Kind", label="kind", links=[_PAGE]),
        Column(title="Cause", label="cause"),
    ]


def _since(expr: str) -> Column:
    return Column(title="Open for", expr=expr, unit=units.Seconds, decimals=0, width=120)


def _helps(expr: str) -> Column:
    return Column(title="A restart helps", expr=expr, said=YES_NO, width=130)


def _opened(selector: str) -> str:
    return f"time() - vllm_watch_incident_opened_timestamp_seconds{{{selector}}}"


def _advised(selector: str) -> str:
    return f"vllm_watch_incident_restart_advised{{{selector}}}"


def summed(selector: str) -> Panel:
    """One cause over many engines is one row, with how many: so it can be read from a distance."""

    def by(operator: str, expr: str) -> str:
        return f"{operator} by (kind, cause) ({expr})"

    found = f"vllm_watch_incident_open{{{selector}}}"
    return filled(
        "Incidents by cause",
        [
            _severity(by("max", promql.ranked_incidents(selector))),
            *_kind(),
            Column(title="Targets", expr=by("count", f"count by (instance, target, kind, cause) ({found})"), width=90),
            _since(by("max", _opened(selector))),
            _helps(by("max", _advised(selector))),
        ],
        "Every kind of open incident, the worst first; the affected targets are listed below. " + runbook("alerts.md"),
        sort="Severity", nothing="No incident is open.",
    )  # fmt: skip


def each(title: str, selector: str) -> Panel:
    """Every open incident by itself; those of the watcher and of hosts are of no group."""
    labels = "(instance, group, target, engine, kind, cause)"

    def by(expr: str) -> str:
        own = f'vllm_watch_incidents_total{{target=~"{promql.OF_NO_GROUP}"}}'
        return f"max by {labels} (({expr}) {GROUP} or ({expr}) and on (job, instance, target) {own})"  # fmt: skip

    return filled(
        title,
        [
            _severity(by(promql.ranked_incidents(selector))),
            Column(title="Group", label="group"),
            Column(title="Target", label="target", links=[links.to_engine()]),
            Column(title="Engine", label="engine", width=80),
            *_kind(),
            _since(by(_opened(selector))),
            _helps(by(_advised(selector))),
            Column(title="Watcher", label="instance"),
        ],
        "Every open incident; its evidence stands on the watcher's own page. Click a target to see its sources. "
        + runbook("alerts.md"),
        sort="Severity", nothing="No incident is open.",
    )  # fmt: skip
