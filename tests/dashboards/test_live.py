"""Every query of every dashboard, asked of a real Prometheus that scrapes the real daemon through every trouble.

No Grafana renders them here; what Grafana would ask is asked, with its variables filled in, and an error or an answer
without a value over the whole run is a failure.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.dashboards import grafana
from tests.dashboards.prometheus import Prometheus, wait_for
from tests.dashboards.stage import KINDS
from tests.ports import free_port
from tests.promql import selectors

STAGE = Path(__file__).parent / "stage.py"
ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 180.0  # on a machine busy with other tests; alone it takes three
HEALTH_SECONDS = 4.0  # before anything happens
PLAYED_SECONDS_MAX = 180.0  # the same; alone it takes about 40
RENAMED = "vllm_watch_engine_throughput_ratio"
SCRAPE_S = 1
AGAIN_SECONDS = 3.0

Asked = tuple[str, grafana.Query]  # the dashboard's file, a query of it
BOARDS = {file.name: grafana.load(file) for file in grafana.FILES}
ALL: list[Asked] = [(name, query) for name, made in BOARDS.items() for query in grafana.queries(made)]  # fmt: skip


class Check:
    """Of what one Prometheus has seen since `began_t`."""

    def __init__(self, prometheus: Prometheus, began_t: float) -> None:
        self._prometheus = prometheus
        self._began_t = began_t

    @property
    def _span(self) -> dict[str, float]:
        return {"start": self._began_t, "end": time.time()}

    def values(self, selector: str, label: str) -> list[str]:
        """As `label_values` brings them."""
        asked = {"match[]": selector, **self._span}
        names: list[str] = self._prometheus.ask(f"label/{label}/values", asked)
        return names

    def has_value(self, expr: str, filled: dict[str, str]) -> bool:
        """Was there a number at any time?"""
        range_s = max(SCRAPE_S, int(time.time() - self._began_t))
        text = grafana.fill(expr, interval_s=SCRAPE_S, range_s=range_s, **filled)
        asked = {"query": text, "step": SCRAPE_S, **self._span}
        result = self._prometheus.ask("query_range", asked)["result"]
        return any(value != "NaN" for series in result for _, value in series["values"])

    def unanswered(self, asked: Iterable[Asked]) -> list[Asked]:
        """Those without a value, whatever is chosen at the top of their dashboard."""
        chosen: dict[str, list[dict[str, str]]] = {}
        left = []
        for file, query in asked:
            if file not in chosen:
                chosen[file] = list(grafana.choices(BOARDS[file], self.values))
            if not any(self.has_value(query.expr, filled) for filled in chosen[file]):
                left.append((file, query))
        return left

    def empty_variables(self) -> list[str]:
        """Variables that bring nothing to choose from, whatever was chosen before them."""
        found = []
        for file, dashboard in BOARDS.items():
            for number, variable in enumerate(grafana.variables(dashboard)):
                selector, label = grafana.asked(variable)
                before = _without(dashboard, number)
                texts = [
                    grafana.fill(selector, interval_s=1, range_s=1, **filled)
                    for filled in grafana.choices(before, self.values)
                ]
                if not any(self.values(text, label) for text in texts):
                    found.append(f"{file}: {variable['name']}")
        return found


def _without(dashboard: dict[str, Any], number: int) -> dict[str, Any]:
    """The dashboard with its first variables only."""
    return {"templating": {"list": grafana.variables(dashboard)[:number]}}


def named(asked: Iterable[Asked]) -> list[str]:
    """Which they are, for people."""
    return sorted({f"{file}: {query.panel}: {query.expr}" for file, query in asked})


def until_answered(check: Check, asked: Iterable[Asked], seconds: float, also: Callable[[], bool]) -> list[Asked]:  # fmt: skip
    """Ask until all have a value and `also` is so, or the time is up; return those that have none."""
    deadline = time.monotonic() + seconds
    left = check.unanswered(asked)
    while (left or not also()) and time.monotonic() < deadline:
        time.sleep(AGAIN_SECONDS)
        left = check.unanswered(left)
    return left


class RenamingProxy:
    """A watcher whose metric was renamed: the /metrics of `source` (HOST:PORT) with `old` written as `new`, on a port of its own."""

    def __init__(self, source: str, old: str, new: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with urllib.request.urlopen(f"http://{source}{self.path}", timeout=10) as answer:
                    body = answer.read().replace(old.encode(), new.encode())
                    kind = answer.headers["Content-Type"]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:  # fmt: skip
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


@dataclass(frozen=True)
class Play:
    """A run: the daemon's address, what Prometheus saw of it, and what it would see of one with a renamed metric."""

    address: str
    check: Check
    renamed: Check
    left: list[Asked]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """Everything happens once."""
    folder = tmp_path_factory.mktemp("stage")
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, str(STAGE), str(folder), address.rpartition(":")[2]]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT, env=environ
        ) as process,
    ):
        try:
            wait_for(f"http://{address}/-/ready", process, READY_SECONDS_MAX)
            yield from _played(process, address, tmp_path_factory)
        finally:
            process.terminate()
            process.wait(timeout=15)


def _played(process: subprocess.Popen[bytes], address: str, folders: pytest.TempPathFactory) -> Iterator[Play]:  # fmt: skip
    began_t = time.time()
    with (
        RenamingProxy(address, RENAMED, RENAMED + "s") as proxy,
        Prometheus(folders.mktemp("prometheus"), address) as prometheus,
        Prometheus(folders.mktemp("renamed"), proxy.address) as other,
    ):
        time.sleep(HEALTH_SECONDS)
        process.send_signal(signal.SIGUSR1)
        check, renamed = Check(prometheus, began_t), Check(other, began_t)
        left = until_answered(check, ALL, PLAYED_SECONDS_MAX, lambda: everything_happened(check))
        yield Play(address, check, renamed, left)


def everything_happened(check: Check) -> bool:
    """Was there an incident of every kind, and restarts that were made, kept back, helpful and not?"""
    return all(expected <= set(check.values(*asked)) for asked, expected in HAPPENS.items())


HAPPENS = {
    ("vllm_watch_incident_open", "kind"): KINDS,
    ("vllm_watch_restarts_total", "outcome"): {"helped", "did_not_help", "failed", "dry_run"},
    ("vllm_watch_restart_kept_back", "gate"): {"window", "approval"},
}


def test_everything_happened(play: Play) -> None:
    """No trouble that a dashboard can show is missing from the run, and no kind is new to it."""
    missing = {asked: expected - set(play.check.values(*asked)) for asked, expected in HAPPENS.items()}  # fmt: skip
    assert not any(missing.values()), missing
    assert set(play.check.values("vllm_watch_incident_open", "kind")) == KINDS


def test_every_panel_and_annotation_has_data(play: Play) -> None:
    """No query fails, and each has a value at some time of the run; no panel is excused."""
    assert named(play.left) == []


def test_every_variable_has_something_to_choose(play: Play) -> None:
    assert play.check.empty_variables() == []


def test_a_metric_that_is_renamed_where_it_is_exported_is_found_out(play: Play) -> None:
    """Just the queries that cannot do without it fail, on a watcher that calls it something else."""
    those = [
        each for each in ALL
        if RENAMED in {s.name for s in selectors(grafana.fill(each[1].expr, interval_s=1, range_s=60))}
    ]  # fmt: skip
    others = [each for each in ALL if each not in those and each not in play.left][::7]
    assert len({file for file, _ in those}) >= 3, "it is on several dashboards"
    assert named(play.renamed.unanswered([*those, *others])) == named(those)
