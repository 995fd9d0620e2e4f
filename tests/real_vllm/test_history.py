"""A quarter of an hour of a real vLLM under three real faults, as a real Prometheus stored it, judged afterwards."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stored_history import prometheus
from tests.real_vllm.faults import slowed, stopped_at_work
from tests.real_vllm.load import Load, under_load
from tests.real_vllm.server import RealVllm
from tests.real_vllm.ward import requests_per_second_max

pytestmark = [pytest.mark.real_vllm, pytest.mark.long]

INTERVALS_SECONDS = (5, 15)  # Prometheus' own default is 60, charts of vLLM bring 5 and 15
# Far from its limits, and never more at once than it runs, so that no fault leaves a queue behind.
LIGHT = Load(prompt_tokens=(16, 200), output_tokens=(100, 300), in_flight_max=24)
LIGHT_SHARE = 0.3
HEALTHY_SECONDS, BETWEEN_SECONDS = 210.0, 120.0
HUNG_SECONDS, SLOW_SECONDS, DOWN_SECONDS = 100.0, 210.0, 90.0
REPLAY_SECONDS_MAX = 120.0

Faults = dict[tuple[str, str], tuple[float, float]]  # kind and cause → begin and end, Unix seconds


@contextlib.contextmanager
def noted(faults: Faults, kind: str, cause: str) -> Iterator[None]:
    began = time.time()
    yield
    faults[kind, cause] = (began, time.time())


def suffer(vllm: RealVllm) -> Faults:
    """Serve users for a quarter of an hour, with a hang, slow steps and a crash in it."""
    faults: Faults = {}
    rate = LIGHT_SHARE * requests_per_second_max(vllm, LIGHT)
    with under_load(
        vllm.url, replace(LIGHT, requests_per_second=rate, requests_max=1_000_000, seconds_max=3600)
    ):
        time.sleep(HEALTHY_SECONDS)
        with noted(faults, "engine_stalled", "hang"), stopped_at_work(vllm, "engine_core"):
            time.sleep(HUNG_SECONDS)
        time.sleep(BETWEEN_SECONDS)
        with noted(faults, "throughput_collapse", "slow_engine"), slowed(vllm, "engine_core"):
            time.sleep(SLOW_SECONDS)
        time.sleep(BETWEEN_SECONDS)
        with noted(faults, "engine_down", "crash"):
            vllm.kill("engine_core")
            time.sleep(DOWN_SECONDS)
            vllm.restart()
        time.sleep(BETWEEN_SECONDS)
    return faults


def judged(url: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "replay", "--prometheus", url, "--since", "1h", *arguments],
        capture_output=True, text=True, timeout=REPLAY_SECONDS_MAX, check=True,
    )  # fmt: skip
    return done.stdout


def test_three_faults_are_named_and_nothing_else(shared_vllm: RealVllm, tmp_path: Path) -> None:
    """At each scrape interval: three incidents in their order, each begun while its fault lasted."""
    vllm = shared_vllm
    vllm.restart()
    with contextlib.ExitStack() as stores:
        urls = {}
        for interval_s in INTERVALS_SECONDS:
            folder = tmp_path / str(interval_s)
            folder.mkdir()
            target = vllm.url.removeprefix("http://")
            urls[interval_s] = stores.enter_context(prometheus(folder, [target], interval_s))
        faults = suffer(vllm)
        (tmp_path / "faults.json").write_text(
            json.dumps([[*key, *span] for key, span in faults.items()])
        )
        said = {interval_s: judged(url, "--json") for interval_s, url in urls.items()}
        for interval_s, url in urls.items():
            report = tmp_path / f"{interval_s}.html"
            print(judged(url, "--report", str(report)))
            assert "Collapsed: slow engine" in report.read_text()
    for interval_s, out in said.items():
        events: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
        last = {each["id"]: each for each in events}
        opened = {each["id"]: each["t"] for each in events if each["event"] == "opened"}
        assert [(each["kind"], each["cause"]) for each in last.values()] == list(faults), out
        assert all(each["event"] == "resolved" for each in last.values()), out
        for name, (began, ended) in zip(opened, faults.values(), strict=True):
            assert began < opened[name] <= ended + 2 * interval_s, out
