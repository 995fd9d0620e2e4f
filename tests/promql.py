"""What a PromQL expression asks for, held against the table of what we export."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import promql_parser

from vllm_watch.board.health import NOTIFIER_OUTCOMES
from vllm_watch.export.families import FAMILIES, GPU_STATUSES
from vllm_watch.incidents.incident import SEVERITIES
from vllm_watch.restart.facts import TRIGGERS
from vllm_watch.restart.guard import CHECK_NAMES
from vllm_watch.samples.observation import OUTCOMES
from vllm_watch.settings.restart import Mode
from vllm_watch.signals.state import STATES
from vllm_watch.state.attempt import ENDED_STATES
from vllm_watch.story.kinds import KINDS

NAME = re.compile(r"\bvllm_watch_[a-z0-9_]+")
LABELS = {family.name: set(family.all_labels) for family in FAMILIES if not family.bounds} | {
    family.name + end: {*family.all_labels, *more}
    for family in FAMILIES
    if family.bounds
    for end, more in (("_bucket", ["le"]), ("_sum", []), ("_count", []))
}
SCRAPE_LABELS = {"job", "instance"}  # given by Prometheus
# Not ours: of Prometheus, and of prometheus_client's process collector, which /metrics carries too.
FOREIGN = dict.fromkeys((
    "up", "scrape_duration_seconds", "scrape_samples_scraped", "process_start_time_seconds",
    "process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds",
), SCRAPE_LABELS)  # fmt: skip
VALUES = {
    "state": set(STATES),
    "outcome": set(OUTCOMES),
    "status": set(GPU_STATUSES),
    "quantile": {"0.5", "0.95", "0.99"},
    "severity": set(SEVERITIES),
    "objective": {"time_to_first_token", "inter_token_latency", "e2e_latency"},
    "source": {"metrics", "health", "version", "models", "sleep", "canary", "nvml"},
    "kind": set(KINDS),
    "trigger": set(TRIGGERS),
    "blocker": set(CHECK_NAMES),
    "for": {"approval", "gate"},
    "gate": set(CHECK_NAMES),
    "mode": set(get_args(Mode)),
}
# Where one label means something else: of a restart the outcome is not that of a scrape.
VALUES_OF = {
    ("vllm_watch_restarts_total", "outcome"): set(ENDED_STATES),
    ("vllm_watch_restart_last_info", "outcome"): set(ENDED_STATES),
    ("vllm_watch_notifications_total", "outcome"): set(NOTIFIER_OUTCOMES),
}


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """Every series selector in it, those within ranges too. Raises ValueError for no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), pre_visit=visit)
    return iter(found)


def names(selector: promql_parser.VectorSelector) -> list[str]:
    """The series that are meant: one by its name, or several by a matcher of names."""
    found = [each.value for each in selector.matchers.matchers if each.name == "__name__"]
    return [selector.name] if selector.name else found[0].split("|")


def recorded(rules: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """What recording rules record, in their order → the labels that it can have."""
    found: dict[str, set[str]] = {}
    for rule in rules:
        if "record" in rule:
            labels = set(rule.get("labels", {}))
            for selector in selectors(rule["expr"]):
                labels |= found.get(selector.name) or LABELS.get(selector.name) or set()
            found.setdefault(rule["record"], set()).update(labels)
    return found


def complaints(expression: str, made: Mapping[str, set[str]] | None = None) -> list[str]:
    """What it asks for that does not exist: series, labels, values of labels. `made`: what is recorded."""
    found: list[str] = []
    for selector in selectors(expression):
        known_labels = {**LABELS, **FOREIGN, **(made or {})}
        missing = [name for name in names(selector) if name not in known_labels]
        if missing:
            found += [f"{name} is not exported" for name in missing]
            continue
        labels = set().union(*(known_labels[name] for name in names(selector)))
        for matcher in selector.matchers.matchers:
            if matcher.name not in labels | SCRAPE_LABELS | {"__name__"}:
                found.append(f"{selector.name} has no label {matcher.name}")
            known = VALUES_OF.get((selector.name, matcher.name)) or VALUES.get(matcher.name)
            if known and "$" not in matcher.value:
                unknown = set(matcher.value.split("|")) - known
                found += [f"{matcher.name} is never {value}" for value in sorted(unknown)]
    return found
