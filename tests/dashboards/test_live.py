"""Every query of every dashboard, asked of a real Prometheus that scrapes the real daemon through every trouble.

No Grafana renders them here; what Grafana would ask is asked, and an error or an answer without a
value is a failure.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.dashboards import grafana
from tests.dashboards.check import ALL, Asked, Check, named, until_answered
from tests.dashboards.prometheus import Prometheus, wait_for
from tests.dashboards.renaming import RenamingProxy
from tests.dashboards.stage import KINDS
from tests.ports import free_port
from tests.promql import selectors

STAGE = Path(__file__).parent / "stage.py"
ROOT = Path(__file__).parents[2]
READY_SECONDS_MAX = 180.0  # on a machine busy with other tests; alone it takes three
HEALTH_SECONDS = 4.0  # before anything happens
PLAYED_SECONDS_MAX = 180.0  # the same; alone it takes about 40
RENAMED = "vllm_watch_engine_throughput_ratio"


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
    """Was there an incident of every kind, and a restart of every end?"""
    kinds = set(check.values("vllm_watch_incident_open", "kind"))
    ends = set(check.values("vllm_watch_restarts_total", "outcome"))
    gates = set(check.values("vllm_watch_restart_kept_back", "gate"))
    return kinds == KINDS and ends >= ENDS and gates >= GATES


ENDS = {"helped", "did_not_help", "failed", "dry_run"}
GATES = {"window", "approval"}


def test_everything_happened(play: Play) -> None:
    """The run shows every kind of incident, and restarts that were made, kept back, helpful and not."""
    assert set(play.check.values("vllm_watch_incident_open", "kind")) == KINDS
    assert set(play.check.values("vllm_watch_restarts_total", "outcome")) >= ENDS
    assert set(play.check.values("vllm_watch_restart_kept_back", "gate")) >= GATES


def test_every_panel_and_annotation_has_data(play: Play) -> None:
    """No query fails, and each has a value at some time of the run; no panel is excused."""
    assert named(play.left) == []


def test_every_variable_has_something_to_choose(play: Play) -> None:
    """With what was chosen before it filled in."""
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


def test_a_metric_that_is_renamed_in_a_dashboard_is_found_out(play: Play) -> None:
    """The check sees what it is there for: a panel whose metric is not exported."""
    file, old = next(each for each in ALL if "requests_running" in each[1].expr)
    wrong = replace(
        old, panel="renamed", expr=old.expr.replace("requests_running", "requests_active")
    )
    assert play.check.unanswered([(file, wrong)]) == [(file, wrong)]


def test_metrics_are_what_prometheus_likes(play: Play, tmp_path: Path) -> None:
    """The daemon's whole /metrics passes promtool's check of names, types and help."""
    body = tmp_path / "metrics.txt"
    with urllib.request.urlopen(f"http://{play.address}/metrics", timeout=10) as answer:
        body.write_bytes(answer.read())
    with body.open("rb") as stdin:
        done = subprocess.run(
            ["promtool", "check", "metrics"], stdin=stdin, capture_output=True, text=True, timeout=600, check=False
        )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
