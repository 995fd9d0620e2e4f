"""What Grafana does to a dashboard before it asks Prometheus: finds the queries, fills in variables."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = sorted((Path(__file__).parents[2] / "dashboards").glob("*.json"))


@dataclass(frozen=True)
class Query:
    """One query of a panel, as it stands in the file."""

    panel: str
    unit: str | None
    expr: str
    legend: str
    instant: bool


def load(file: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(file.read_text())
    return dashboard


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Every panel that asks for something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> list[Query]:
    return [
        Query(
            panel["title"],
            panel["fieldConfig"]["defaults"].get("unit"),
            target["expr"],
            target.get("legendFormat", ""),
            bool(target.get("instant")),
        )
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


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
