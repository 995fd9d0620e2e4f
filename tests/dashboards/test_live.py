"""Every query of every dashboard, asked of a real Prometheus that scrapes the real daemon.

No Grafana renders them here; what Grafana would ask is asked, and an error or an answer without a
value is a failure.
"""

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.dashboards import grafana
from tests.dashboards.prometheus import Prometheus, free_port, wait_for

DEMO_READY_SECONDS_MAX = 30.0
ANSWERED_SECONDS_MAX = 45.0  # the demo's first requests end, and the shortest rate has its scrapes
SCRAPE_S, RANGE_S = 1, 60
# Panels that may be empty, each with its reason.
MAY_BE_EMPTY = {
    "Calls that failed, per second": "a fleet in which no call failed has no such series"
}
QUERIES = [query for file in grafana.FILES for query in grafana.queries(grafana.load(file))]


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The demo's address: the whole daemon, with simulated engines and GPUs."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "vllm_watch", "demo", "--listen", address]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(f"http://{address}/-/ready", process, DEMO_READY_SECONDS_MAX)
            yield address
        finally:
            process.terminate()
            process.wait(timeout=15)


@pytest.fixture(scope="module")
def prometheus(demo: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), demo) as running:
        yield running


def targets(prometheus: Prometheus) -> list[str]:
    """What the variable's own query brings."""
    variables = [v for file in grafana.FILES for v in grafana.load(file)["templating"]["list"]]
    (query,) = {variable["query"] for variable in variables if variable["name"] == "target"}
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
    assert found
    names: list[str] = prometheus.ask(f"label/{found[2]}/values", {"match[]": found[1]})
    return names


def has_value(prometheus: Prometheus, query: grafana.Query) -> bool:
    chosen = "(" + "|".join(re.escape(name) for name in targets(prometheus)) + ")"
    expr = grafana.fill(query.expr, interval_s=SCRAPE_S, range_s=RANGE_S, target=chosen)
    now = time.time()
    if query.instant:
        result = prometheus.ask("query", {"query": expr, "time": now})["result"]
        values = [series["value"] for series in result]
    else:
        asked = {"query": expr, "start": now - RANGE_S, "end": now, "step": SCRAPE_S}
        result = prometheus.ask("query_range", asked)["result"]
        values = [value for series in result for value in series["values"]]
    return any(value != "NaN" for _, value in values)


def unanswered(
    prometheus: Prometheus, queries: Iterable[grafana.Query], seconds: float
) -> list[str]:
    """The panels that stay without a value for so long."""
    deadline = time.monotonic() + seconds
    left = [query for query in queries if query.panel not in MAY_BE_EMPTY]
    while left := [query for query in left if not has_value(prometheus, query)]:
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    return [query.panel for query in left]


def test_every_panel_has_data(prometheus: Prometheus) -> None:
    """No query fails, and each brings a value within the demo's first minute."""
    assert unanswered(prometheus, QUERIES, ANSWERED_SECONDS_MAX) == []


def test_panels_that_may_be_empty_are_valid(prometheus: Prometheus) -> None:
    """What may bring nothing must still be a query that Prometheus takes."""
    excused = [query for query in QUERIES if query.panel in MAY_BE_EMPTY]
    assert {query.panel for query in excused} == set(MAY_BE_EMPTY)
    for query in excused:
        has_value(prometheus, query)


def test_a_renamed_metric_is_found_out(prometheus: Prometheus) -> None:
    """The check sees what it is there for: a panel whose metric is no longer exported."""
    old = next(query for query in QUERIES if "requests_running" in query.expr)
    renamed = replace(old, panel="renamed", expr=old.expr.replace("running", "active"))
    assert unanswered(prometheus, [renamed], 0) == ["renamed"]


def test_metrics_are_what_prometheus_likes(demo: str, tmp_path: Path) -> None:
    """The daemon's whole /metrics passes promtool's check of names, types and help."""
    body = tmp_path / "metrics.txt"
    with urllib.request.urlopen(f"http://{demo}/metrics", timeout=10) as answer:
        body.write_bytes(answer.read())
    with body.open("rb") as stdin:
        done = subprocess.run(
            ["promtool", "check", "metrics"], stdin=stdin, capture_output=True, text=True, timeout=30, check=False
        )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
