"""The daemon against a real vLLM: what it shows is what is so, and each fault is seen as what it is.

Of an engine or an API server that is stopped test_judgement.py tells.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.real_vllm.by_hand import Found, Window
from tests.real_vllm.daemon import Daemon, Metrics
from tests.real_vllm.faults import stopped_at_work
from tests.real_vllm.load import Load, Report, run_load, under_load
from tests.real_vllm.server import BLOCK_SIZE, MODEL_NAME, USUAL, RealVllm
from tests.real_vllm.witness import comes_to
from vllm_watch.signals.totals import COUNTERS

pytestmark = pytest.mark.real_vllm

TARGET = "tiny"
PREFIX = "vllm_watch_engine_"
RATE = "generation_tokens_per_second"
POLL_SECONDS = 0.2  # well below a scrape interval, so that no look is missed
LOOKS_SECONDS_MAX = 120.0  # a look takes five seconds when the machine has time
# One that shares its core needs its time to work off what has piled up; faults have two looks to be seen in.
RECOVERED_LOOKS = 20
WARM_STEPS, WARM_SECONDS_MAX = 150, 120.0
# Long answers, so that the engine has work in hand at any moment: vLLM tells its gauges at the end of a
# step, and one that is hurt while idle goes on saying that it is.
LIGHT = Load(clients=4, prompt_tokens=(16, 64), output_tokens=(600, 1200))
# More sequences than max_num_seqs and more tokens than blocks: they wait, and some are preempted.
HEAVY = Load(
    clients=48, prompt_tokens=(300, 500), output_tokens=(400, 600), shared_prefix_tokens=96
)
OBJECTIVES_SECONDS = {"time_to_first_token": 0.3, "inter_token_latency": 0.013}
EVERY_SECOND = {
    "SCRAPE__INTERVAL_SECONDS": "1",
    "SIGNALS__WINDOW_SECONDS": "20",
    **{f"SLO__{name.upper()}_SECONDS": f"{limit}" for name, limit in OBJECTIVES_SECONDS.items()},
}
# A start takes from 16 s to minutes, as the machine at hand is busy: old and new fit into one window.
LOOKS_FAR_BACK = {"SIGNALS__WINDOW_SECONDS": "400"}

Condition = Callable[[Metrics], bool]


@pytest.fixture
def watch(vllm: RealVllm, tmp_path: Path) -> Iterator[Daemon]:
    """The daemon as it comes: five seconds between two looks, a window of a minute."""
    with Daemon(tmp_path, {TARGET: vllm.url}, {}) as daemon:
        yield daemon


@pytest.fixture
def close_watch(vllm: RealVllm, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that looks each second and knows objectives."""
    with Daemon(tmp_path, {TARGET: vllm.url}, EVERY_SECOND) as daemon:
        yield daemon


def looked_at(metrics: Metrics) -> float:
    """Unix time of the last look."""
    return metrics.get("vllm_watch_target_last_observation_timestamp_seconds", target=TARGET) or 0.0


def state(metrics: Metrics) -> str | None:
    return metrics.holding("vllm_watch_engine_state", "state", target=TARGET)


def outcome(metrics: Metrics) -> str | None:
    return metrics.holding("vllm_watch_target_scrape_outcome", "outcome", target=TARGET)


def up(metrics: Metrics) -> bool:
    return metrics.get("vllm_watch_target_up", target=TARGET) == 1


def of_engine(metrics: Metrics, name: str) -> float:
    value = metrics.get(PREFIX + name, target=TARGET)
    assert value is not None, f"{name} is absent"
    return value


def is_down(ended: str) -> Condition:
    return lambda metrics: not up(metrics) and (state(metrics), outcome(metrics)) == ("down", ended)


def is_serving(metrics: Metrics) -> bool:
    return up(metrics) and state(metrics) == "serving"


def seen(daemon: Daemon, condition: Condition, since: float, looks: int = 2) -> Metrics:
    """Wait for the condition; fails where it does not hold by the `looks`-th look begun after `since`."""
    deadline = time.monotonic() + LOOKS_SECONDS_MAX
    times: set[float] = set()
    while time.monotonic() < deadline and len(times) < looks:
        metrics = daemon.metrics()
        if looked_at(metrics) > since:
            times.add(looked_at(metrics))
            if condition(metrics):
                return metrics
        time.sleep(POLL_SECONDS)
    said = {key: daemon.status(TARGET)[key] for key in ("state", "state_text", "signals")}
    pytest.fail(f"not seen in {len(times)} looks since {since}: {json.dumps(said, indent=1)}")


def eventually(daemon: Daemon, condition: Condition, looks: int = 30) -> Metrics:
    """Wait for what a test begins from, where how soon it comes is not the question."""
    return seen(daemon, condition, since=0.0, looks=looks)


def exported(metrics: Metrics) -> Found:
    """Every engine metric that the window's bodies determine."""
    ours = {"target", "engine", "model_name"}
    # These follow from what happened, or was learnt, since the daemon began, and have tests of their own.
    others = {
        "state", "health_ratio", "last_progress_timestamp_seconds", "restarts_total", "throughput_ratio",
        *(f"{counter}_total" for counter in COUNTERS), "requests_finished_total",
        *(f"{each}_seconds_{part}" for each in ("ttft", "itl", "e2e") for part in ("bucket", "sum", "count")),
    }  # fmt: skip
    return {
        (short, "".join(text for label, text in labels if label not in ours)): value
        for name, series in metrics.series.items()
        if (short := name.removeprefix(PREFIX)) != name and short not in others
        for labels, value in series.items()
    }


def snapshot(daemon: Daemon, objectives: Mapping[str, float]) -> tuple[Metrics, Window]:
    """What is exported, and the recording that it was computed from: both end with the same good look."""
    for _ in range(50):
        metrics = daemon.metrics()
        recording = daemon.recording(TARGET)
        last = recording[-1] if recording else {"ok": False}
        if last["ok"] and last["t"] == looked_at(metrics) == looked_at(daemon.metrics()):
            seconds = metrics.get("vllm_watch_signal_window_seconds")
            assert seconds is not None
            return metrics, Window(recording, seconds, objectives)
        time.sleep(POLL_SECONDS / 4)
    pytest.fail("the metrics and the recording never ended with the same look")


def assert_agrees(metrics: Metrics, window: Window) -> None:
    """Gauges to the last bit, all else to within 1 %, and nothing more or less than those."""
    ours, gauges, derived = exported(metrics), window.gauges(), window.derived()
    assert {name: ours.get(name) for name in gauges} == gauges
    rest = {name: value for name, value in ours.items() if name not in gauges}
    assert sorted(rest) == sorted(derived)
    assert rest == pytest.approx(derived, rel=0.01, abs=1e-9)


def test_what_the_server_is(vllm: RealVllm, watch: Daemon) -> None:
    """Version, model, its limits and the KV cache's size are read from the server that runs."""
    metrics = eventually(watch, up, looks=2)
    said = watch.status(TARGET)["signals"]

    assert (said["version"], said["engine_kind"], said["models"]) == ("0.32.0", "V1", [MODEL_NAME])
    assert (said["health_status"], said["state"], said["unknown_families"]) == (200, "idle", [])
    assert metrics.get(PREFIX + "requests_running", model_name=MODEL_NAME, engine="0") == 0
    assert of_engine(metrics, "kv_cache_capacity_tokens") == USUAL.num_gpu_blocks * BLOCK_SIZE
    assert watch.recording(TARGET)[-1]["max_model_len"] == USUAL.max_model_len


def test_values_equal_the_raw_ones(vllm: RealVllm, close_watch: Daemon) -> None:
    """Under a load that queues and preempts, every exported value is what the recording's bodies say."""
    checked = 0
    with under_load(vllm.url, HEAVY):
        began = time.monotonic()
        # The window of 20 s fills, then slides; on a busy machine one comparison takes seconds.
        while (passed := time.monotonic() - began) < 40 or (checked < 5 and passed < 120):
            time.sleep(4)
            metrics, window = snapshot(close_watch, OBJECTIVES_SECONDS)
            if len(window.bodies) > 2:
                assert_agrees(metrics, window)
                checked += 1

    assert checked >= 5
    # Zeros would agree with zeros: the load was what it was meant to be.
    last = exported(metrics)
    assert last["requests_running", ""] > 0
    assert last["requests_waiting", ""] > 0
    assert last["preemptions_per_second", ""] > 0
    assert last["prefix_cache_hit_ratio", ""] > 0


def read(vllm: RealVllm) -> dict[str, Any]:
    """What `vllm-watch read URL --json` says of the one engine."""
    command = [sys.executable, "-m", "vllm_watch", "read", f"{vllm.url}/metrics", "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout)
    assert (said["vllm"], said["engine_kind"], said["unknown_families"]) == (True, "V1", [])
    engine: dict[str, Any] = said["engines"]["0"]
    return engine


def test_read_counts_what_the_client_counts(vllm: RealVllm) -> None:
    """Tokens and requests grow by exactly what a client outside of vLLM has sent and got."""
    # What the last test abandoned may still be counted for a moment.
    comes_to(vllm.url, lambda now: now.last.running == now.last.waiting == now.steps == 0, 60.0)
    before, report = read(vllm), Report()
    asyncio.run(run_load(vllm.url, Load(requests_per_second=20, requests_max=40), report))
    after = read(vllm)

    assert (report.finished, report.failed) == (40, 0)
    assert after["generation_tokens"] - before["generation_tokens"] == report.output_tokens
    assert after["prompt_tokens"] - before["prompt_tokens"] == report.prompt_tokens
    assert after["request_success"]["length"] - before["request_success"]["length"] == 40
    assert after["e2e_latency"]["count"] - before["e2e_latency"]["count"] == 40
    slowest_possible = sum(report.latencies_seconds)
    assert 0 < after["e2e_latency"]["sum"] - before["e2e_latency"]["sum"] <= slowest_possible


def assert_stall_is_seen(vllm: RealVllm, role: str, watch: Daemon) -> None:
    """Stop one process with work in hand and continue it: a stall, and service again."""
    # One that has made a few steps only may be compiling, and is given half a minute.
    comes_to(vllm.url, lambda now: now.last.steps >= WARM_STEPS, WARM_SECONDS_MAX)
    eventually(watch, is_serving)
    # The watcher must see progress before the stop; else the engine is unknown.
    eventually(watch, lambda m: m.get(PREFIX + "last_progress_timestamp_seconds", target=TARGET) is not None)  # fmt: skip
    with stopped_at_work(vllm, role, least=2):  # a hang with one request is reported after 20 s
        metrics = seen(watch, lambda _: True, since=time.time(), looks=1)
        last_progress = of_engine(metrics, "last_progress_timestamp_seconds")
        metrics = seen(watch, lambda m: state(m) == "stalled", since=last_progress)

        assert of_engine(metrics, "last_progress_timestamp_seconds") == last_progress
        assert up(metrics)  # the API server answers as if nothing were wrong
        engine = watch.status(TARGET)["signals"]["engines"]["0"]
        assert engine["requests_running"] > 0
        assert "no scheduler step" in engine["state_text"]
    seen(watch, is_serving, since=time.time(), looks=RECOVERED_LOOKS)


def test_killed_engine_then_restart(vllm: RealVllm, tmp_path: Path) -> None:
    """The API server gives up on a dead engine; a new server counts on from where the old one ended."""
    began = "vllm_watch_target_process_start_timestamp_seconds"
    with Daemon(tmp_path, {TARGET: vllm.url}, LOOKS_FAR_BACK) as watch, under_load(vllm.url, LIGHT):
        metrics = eventually(watch, lambda m: is_serving(m) and bool(exported(m).get((RATE, ""))))
        restarts = of_engine(metrics, "restarts_total")
        old = metrics.get(began, target=TARGET)
        vllm.kill("engine_core")
        vllm.wait_gone()
        seen(watch, is_down("refused"), since=time.time())

        vllm.restart()
        metrics = eventually(watch, is_serving)
        assert of_engine(metrics, "restarts_total") == restarts + 1
        for _ in range(4):
            metrics, window = snapshot(watch, {})
            assert_agrees(metrics, window)
            assert of_engine(metrics, RATE) > 0
            seen(watch, up, since=looked_at(metrics), looks=5)

    started = "process_start_time_seconds"
    assert old == window.first[started][()]
    assert metrics.get(began, target=TARGET) == window.last[started][()] != old


def test_killed_api_server_is_refused(vllm: RealVllm, watch: Daemon) -> None:
    """Its engine lives on as an orphan that nobody can reach: the target is down."""
    eventually(watch, up)
    vllm.kill("api_server")
    metrics = seen(watch, is_down("refused"), since=time.time())

    assert "engine_core" in vllm.processes()
    assert exported(metrics) == {}


def test_faults_of_a_worker(tmp_path: Path) -> None:
    """Where the engine has workers, one that hangs stalls it and one that dies takes it all down."""
    (tmp_path / "vllm").mkdir()
    with (
        RealVllm(tmp_path / "vllm", "mp") as vllm,
        Daemon(tmp_path, {TARGET: vllm.url}, {}) as watch,
        under_load(vllm.url, LIGHT),
    ):
        assert_stall_is_seen(vllm, "worker", watch)
        vllm.kill("worker")
        vllm.wait_gone()
        seen(watch, is_down("refused"), since=time.time())
