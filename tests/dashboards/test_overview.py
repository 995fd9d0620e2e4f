"""The dashboards as files: made by their builder, and asking only for what we export, in its unit."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards import grafana
from tests.promql import FOREIGN, LABELS, SCRAPE_LABELS, complaints, selectors

BUILDER = Path(__file__).parents[2] / "dashboards" / "build.py"
DASHBOARDS = {file.name: grafana.load(file) for file in grafana.FILES}
QUERIES = {
    f"{name}: {query.panel}": query
    for name, dashboard in DASHBOARDS.items()
    for query in grafana.queries(dashboard)
}
# End of a metric's name → units that show it rightly. Counts of requests have no ending.
UNITS = {
    "_tokens_per_second": {"suffix: tokens/s"}, "_timestamp_seconds": {"s"}, "_seconds": {"s"},
    "_ratio": {"percentunit"}, "_bytes": {"bytes", "percentunit"}, "_watts": {"watt"},
    "_celsius": {"celsius"}, "_total": {"short"}, "_info": None,
}  # fmt: skip


def filled(expr: str) -> str:
    return grafana.fill(expr, interval_s=15, range_s=3600, target=".*")


def test_file_is_what_the_builder_builds() -> None:
    """The file is not edited by hand, and not left behind."""
    done = subprocess.run(
        [sys.executable, BUILDER, "--check"], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
def test_ids_are_unique_and_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    """Grafana shifts what overlaps, and confuses panels of one id."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in itertools.combinations([p["gridPos"] for p in dashboard["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in dashboard["panels"])


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
def test_data_source_is_a_variable_everywhere(dashboard: dict[str, Any]) -> None:
    """A dashboard that names its author's data source works at nobody else's."""
    uses = [panel["datasource"] for panel in grafana.panels(dashboard)]
    uses += [t["datasource"] for panel in grafana.panels(dashboard) for t in panel["targets"]]
    uses += [v["datasource"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    assert all(use == {"type": "prometheus", "uid": "${datasource}"} for use in uses)


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS.keys())
def test_every_panel_says_what_it_means(dashboard: dict[str, Any]) -> None:
    """A number without an explanation is taken for what it is not."""
    silent = [p["title"] for p in grafana.panels(dashboard) if len(p.get("description", "")) < 30]
    assert silent == []


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_query_asks_for_what_exists(query: grafana.Query) -> None:
    """Every series, label and label value that a panel names is exported."""
    assert complaints(filled(query.expr)) == []


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_unit_is_the_metrics_own(query: grafana.Query) -> None:
    """What ends in _seconds is shown as time, in _bytes as bytes or as a share of others."""
    for selector in selectors(filled(query.expr)):
        ending = next((end for end in UNITS if selector.name.endswith(end)), None)
        allowed = UNITS[ending] if ending else {"short", None}  # None: states are shown as words
        assert allowed is None or query.unit in allowed, (selector.name, query.unit)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_legend_names_labels_that_are_left(query: grafana.Query) -> None:
    """A legend's label is one that the series have and the aggregation keeps."""
    wanted = set(re.findall(r"{{\s*(\w+)\s*}}", query.legend))
    expr = filled(query.expr)
    kept = set.union(
        *({*SCRAPE_LABELS, *(LABELS.get(s.name) or FOREIGN[s.name])} for s in selectors(expr))
    )
    by = re.search(r"^(?:time\(\) - )?\w+ by \(([^)]*)\)", expr)
    if by:
        kept = {label.strip() for label in by[1].split(",")}
    assert wanted <= kept
    assert wanted or query.instant, "lines without labels cannot be told apart"
