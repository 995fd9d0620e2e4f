"""replay --prometheus: a real Prometheus over blocks of the lab's engines under faults."""

import asyncio
import json
import sys

import pytest

from tests.cli.stored_history import FAULT_T, prometheus, write_blocks
from tests.sources.wire import wire
from vllm_watch.cli.helpers.history import Judged, compared
from vllm_watch.sources.prometheus_history import (
    Firing,
    StoredTarget,
    _gathered,
    _given,
    _observation,
)
from vllm_watch.sources.reading import Reader

PATIENCE_SECONDS = 300.0
ALERTS = [("EngineSlow", "sick-1:8000", FAULT_T + 300, FAULT_T + 600), ("TooManyRequests", "fine:8000", 600, 900)]  # fmt: skip
WANTED = {
    ("sick-0:8000", "engine_stalled", "hang"),
    ("sick-1:8000", "throughput_collapse", "slow_engine"),
    ("sick-2:8000", "engine_down", "crash"),
}


async def replay(*arguments):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", "replay", *map(str, arguments), stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    return process.returncode, out.decode(), err.decode()


def pages(out):
    """(target, kind, cause) of every incident that pages, and those of it that opened within ten minutes of the faults."""
    events = [json.loads(line) for line in out.splitlines()]
    return {(e["target"], e["kind"], e["cause"]) for e in events if e["severity"] == "page"}, events


@pytest.mark.parametrize(
    ("interval_s", "rename"),
    [(15, str), (30, lambda name: name.replace("vllm:", "vllm_"))],
    ids=["15 s", "30 s, renamed"],
)
async def test_three_faults_are_found_and_nothing_else(tmp_path, interval_s, rename):
    """A hang, a slow engine and a crash page, each while its fault lasts; the healthy engine is never named."""
    epoch, end = write_blocks(tmp_path, interval_s, ALERTS, rename)
    with prometheus(tmp_path) as url:
        since = ("--since", epoch - 1, "--until", end)
        status, out, err = await replay("--prometheus", url, *since, "--json")
        found, events = pages(out)
        assert (status, err, found) == (0, "", WANTED)
        opened = [e["t"] - epoch for e in events if e["event"] == "opened" and e["severity"] == "page"]  # fmt: skip
        assert all(FAULT_T < t < FAULT_T + 600 for t in opened)
        assert "fine:8000" not in {e["target"] for e in events}

        report = tmp_path / "report.html"
        _, out, _ = await replay("--prometheus", url, *since, "--report", report)
    summary = out.splitlines()[0]
    assert summary.startswith("1 h 5 min, 4 servers: ")
    assert "1 × Down (10 min unseen by your alerts)" in summary
    assert summary.endswith("your rules fired 2 times, 1 of them at healthy times")
    assert "TooManyRequests" in out.partition("alerts at healthy times:")[2]
    assert f"Scraped every {interval_s} s" in out
    page = report.read_text()
    assert "Collapsed: slow engine" in page
    assert "<script" not in page
    assert "http" not in page.replace(url, "")  # nothing is fetched from anywhere


async def test_a_selector_names_what_is_judged(tmp_path):
    epoch, end = write_blocks(tmp_path, 30)
    with prometheus(tmp_path) as url:
        _, out, _ = await replay(
            "--prometheus", url, "--since", epoch - 1, "--until", end, "--json", "--match", '{instance="sick-2:8000"}'
        )  # fmt: skip
        assert pages(out)[0] == {("sick-2:8000", "engine_down", "crash")}
        status, _, err = await replay("--prometheus", url, "--match", '{job="other"}')
        assert (status, "has stored nothing of vLLM's" in err) == (2, True)
        status, _, err = await replay("--prometheus", url, "--match", '{job="')
        assert (status, "answers HTTP 400" in err) == (2, True)


ENGINE = {"job": "vllm", "instance": "gpu-7:8000"}
SEEN = {"job": "vllm-watch", "instance": "gpu-7:9470", "target": "chat", "group": "llm"}
HERE = SEEN | {"address": "127.0.0.1:8000"}
OF_A_POD = SEEN | {"address": "10.1.2.3:8000", "pod": "chat-0", "namespace": "a"}


@pytest.mark.parametrize(
    ("alert", "engine", "watched", "about"),
    [
        (SEEN, ENGINE, HERE, True),
        (SEEN, ENGINE, SEEN | {"address": "GPU-7:8000"}, True),
        (SEEN, ENGINE, SEEN | {"address": "gpu-7:8001"}, False),
        (SEEN, ENGINE | {"instance": "gpu-8:8000"}, HERE, False),  # the loopback of another host
        (SEEN, ENGINE | {"instance": "127.0.0.1:8000"}, HERE, False),  # Prometheus' own
        (SEEN | {"target": "batch"}, ENGINE, HERE, False),
        (SEEN | {"instance": "gpu-8:9470"}, ENGINE, HERE, False),  # another watcher's chat
        ({"job": "vllm-watch", "group": "llm"}, ENGINE, HERE, True),
        ({"job": "vllm-watch", "group": "other"}, ENGINE, HERE, False),
        ({"job": "vllm-watch"}, ENGINE, HERE, True),
        ({"job": "vllm-watch", "instance": "gpu-7:9470"}, ENGINE, HERE, False),  # about the watcher
        ({"job": "kube", "group": "llm"}, ENGINE, HERE, False),
        ({"severity": "none"}, ENGINE, HERE, False),
        (SEEN, {"pod": "chat-0", "namespace": "a", "instance": "10.1.2.3:8000"}, OF_A_POD, True),
        (SEEN, {"pod": "chat-0", "namespace": "b", "instance": "10.1.2.3:8000"}, OF_A_POD, False),
        (SEEN, {"pod": "chat-1", "instance": "10.1.2.3:8000"}, OF_A_POD, False),  # its address, later
    ],
)  # fmt: skip
def test_an_alert_is_about_an_engine_if_a_watcher_says_so(alert, engine, watched, about):
    """vllm_watch_target_info leads from the alert's labels to the address, or the pod, that Prometheus scrapes."""
    firing = Firing("SomeAlert", alert, 10.0, 20.0)
    judged = [Judged(StoredTarget("x", engine))]
    assert compared(judged, [firing], [watched]).firings == ((firing,) if about else ())


async def test_another_server_is_no_prometheus():
    async with wire() as server:
        status, out, err = await replay("--prometheus", server.url)
    assert (status, out) == (2, "")
    assert "does not answer as Prometheus does (HTTP 404)" in err


def test_native_histograms_and_labels_of_both_conventions():
    """A native histogram is read for its count and sum; exported_engine is vLLM's engine, and `engine` the target's."""
    metric = {"__name__": "vllm:num_requests_running", "instance": "a:1", "engine": "prod", "exported_engine": "1", "model_name": "m"}  # fmt: skip
    native = metric | {"__name__": "vllm:time_to_first_token_seconds"}
    given = _given(metric)
    assert given == {"instance": "a:1", "engine": "prod"}
    said = {"result": [
        {"metric": metric, "values": [[10.0, "3"]]},
        {"metric": native, "histograms": [[10.0, {"count": "5", "sum": "2.5", "buckets": []}]]},
    ]}  # fmt: skip
    chunk = _gathered(StoredTarget("a", given).labels, said, {"result": []})
    (engine,) = _observation(10.0, "a", chunk, Reader(judged_only=True)).reading.engines
    assert (engine.engine, engine.model_name, engine.requests_running) == ("1", "m", 3.0)
    assert (engine.ttft.count, engine.ttft.sum) == (5.0, 2.5)


def test_a_failed_scrape_is_one_however_its_zero_is_written():
    """Stores that are no Prometheus may write 0 as 0.0."""
    said = {"result": [{"metric": {"__name__": "up"}, "values": [[10.0, "0.0"], [25.0, "0"], [40.0, "1"]]}]}  # fmt: skip
    chunk = _gathered({}, {"result": []}, said)
    assert chunk.up == {10.0: False, 25.0: False, 40.0: True}
