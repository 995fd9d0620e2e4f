"""The alerts in the form of awesome-prometheus-alerts: one expression each, since that collection has no recording rules.

An alert that needs a recorded series is left out; of the kinds of incidents, which all do, each becomes one over the
incident itself: no group has a say there, so each server that pages does so by itself.
"""

import re
from collections.abc import Iterable
from typing import Any

import kind_rules

from vllm_watch.story.kinds import KINDS, STORIES

SEVERITIES = {"page": "critical", "ticket": "warning"}
_RECORDED = re.compile(r"\b(?!vllm:|ray_vllm:)\w+:\w+")
_OPEN = (
    "vllm_watch_incident_open{{{which}}}\n"
    "  unless on (job, instance, target, engine, kind, cause)\nvllm_watch_incident_recovering == 1"
)

Rule = dict[str, Any]


def services(watched: Iterable[Rule], raw: Iterable[Rule]) -> Rule:
    """The whole document, of the rules that look at the watcher and those that look at vLLM itself."""
    own = [
        {"name": "Embedded exporter", "slug": "embedded-exporter",
         "doc_url": "https://docs.vllm.ai/en/latest/usage/metrics.html", "rules": _alone(raw)},
        {"name": "vllm-watch", "slug": "vllm-watch",
         "rules": [*(_of_kind(kind) for kind in KINDS), _of_tickets(), *_alone(watched)]},
    ]  # fmt: skip
    return {"groups": [{"name": "Machine learning", "services": [{"name": "vLLM", "exporters": own}]}]}  # fmt: skip


def _alone(rules: Iterable[Rule]) -> list[Rule]:
    """Those alerts that need no series that is recorded."""
    found = []
    for rule in rules:
        if "alert" in rule and not _RECORDED.search(rule["expr"]):
            said = rule["annotations"]["description"]
            wait = {"for": rule["for"]} if "for" in rule else {}
            found.append(_rule(rule["alert"], said, rule["expr"], rule["labels"]["severity"]) | wait)  # fmt: skip
    return found


def _of_kind(kind: str) -> Rule:
    story = STORIES[kind]
    query = _OPEN.format(which=f'kind="{kind}", severity="page"')
    return _rule(kind_rules.alert_of(kind), f"{story.about} {story.first_step}", query, "page")


def _of_tickets() -> Rule:
    said = "An incident that can wait until the morning: the labels kind and cause say which, the status page what to do."
    return _rule("VllmIncidentTicket", said, _OPEN.format(which='severity="ticket"'), "ticket")


def _rule(alert: str, description: str, query: str, severity: str) -> Rule:
    words = re.sub(
        r"(?<=[a-z])(?=[A-Z])", " ", alert.removeprefix("Vllm").removeprefix("Raw")
    ).lower()
    return {
        "name": f"vLLM {words}", "description": " ".join(description.split()), "query": query,
        "severity": SEVERITIES[severity],
    }  # fmt: skip
