"""What Grafana does to a dashboard before it asks Prometheus: finds the queries, fills in variables."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = sorted((Path(__file__).parents[2] / "dashboards").glob("*.json"))
SPECIAL = r"\^$.*+?()[]{}|"

Values = Callable[[str, str], list[str]]
"""A selector and a label → the label's values."""


@dataclass(frozen=True)
class Query:
    """One query of a panel or an annotation, as it stands in the file."""

    panel: str
    unit: str | None
    expr: str
    legend: str
    instant: bool
    table: bool = False
    annotation: bool = False


def load(file: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(file.read_text())
    return dashboard


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel that asks for something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> list[Query]:
    """Of its panels, then of its annotations."""
    found = [
        Query(
            panel["title"],
            _unit(panel, target["refId"]),
            target["expr"],
            target.get("legendFormat", ""),
            bool(target.get("instant")),
            table=panel["type"] == "table",
        )
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]
    for each in dashboard["annotations"]["list"]:
        legend = each["titleFormat"] + each["textFormat"]
        found.append(Query(each["name"], None, each["expr"], legend, False, annotation=True))
    return found


def columns(panel: dict[str, Any]) -> dict[str, str]:
    """A table's fields, as Prometheus names them → their titles."""
    (organized,) = [t["options"] for t in panel["transformations"] if t["id"] == "organize"]
    return dict(organized["renameByName"])


def _unit(panel: dict[str, Any], reference: str) -> str | None:
    """In which the values of one query are shown: a table's columns have one each."""
    unit: str | None = panel["fieldConfig"]["defaults"].get("unit")
    if panel["type"] != "table":
        return unit
    titles = columns(panel)
    title = titles.get(f"Value #{reference}") or titles["Value"]
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] == {"id": "byName", "options": title}:
            unit = next((p["value"] for p in override["properties"] if p["id"] == "unit"), unit)
    return unit


def fill(expr: str, *, interval_s: int, range_s: int, **variables: str) -> str:
    """The expression that Prometheus gets; `interval_s` is its scrape interval."""
    # As Grafana does it: the rate interval holds four scrapes at least.
    values = {
        "__rate_interval": f"{4 * interval_s}s", "__interval": f"{interval_s}s",
        "__range": f"{range_s}s", **variables,
    }  # fmt: skip
    for name in sorted(values, key=len, reverse=True):
        expr = expr.replace(f"${{{name}}}", values[name]).replace(f"${name}", values[name])
    return expr


def variables(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that are asked of Prometheus, in their order."""
    return [each for each in dashboard["templating"]["list"] if each["type"] == "query"]


def asked(variable: dict[str, Any]) -> tuple[str, str]:
    """The selector and the label of a variable's query."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
    assert found, variable["query"]
    return found[1], found[2]


def choices(dashboard: dict[str, Any], values: Values) -> Iterator[dict[str, str]]:
    """Every way to fill a dashboard's variables in: All where several may be chosen, else each value in turn."""
    found: list[dict[str, str]] = [{}]
    for variable in variables(dashboard):
        selector, label = asked(variable)
        found = [
            {**before, variable["name"]: text}
            for before in found
            for text in _texts(variable, values(fill(selector, interval_s=1, range_s=1, **before), label))
        ]  # fmt: skip
    yield from found


def _texts(variable: dict[str, Any], values: list[str]) -> list[str]:
    if not variable["multi"]:
        return values
    if variable.get("allValue"):
        return [variable["allValue"]]
    return ["(" + "|".join(map(escaped, values)) + ")"]


def escaped(value: str) -> str:
    """As Grafana writes a value into a regular expression within a PromQL string."""
    return "".join(f"\\\\{each}" if each in SPECIAL else each for each in value)
