"""The whole daemon as a process of its own: real sockets, real signals, real files."""

import asyncio
import gzip
import json
import re
import signal
import socket
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.daemon_process import ROOT, daemon
from tests.fake_vllm import vllm_serve
from tests.nvml_stub import NvmlStub, h200
from tests.sources.wire import wire

BODY = (Path(__file__).parent / "sources/captures/0.32.0-v1-cpu-midload.txt").read_text()
MODELS = json.dumps({"data": [{"id": "example/model-8b", "max_model_len": 8192}]})


def engine_routes(server, body=BODY):
    server.on("/metrics", body)
    server.on("/health", "")
    server.on("/version", '{"version": "0.32.0"}')
    server.on("/v1/models", MODELS)


FAILED = re.compile(r'finished_reason="(?:error|repetition|abort)"|status="5')


def growing(body=BODY, works=lambda: True):
    """A handler whose counters grow with each scrape while it `works`."""
    scrapes = 0

    async def metrics(request):
        nonlocal scrapes
        scrapes += works()
        lines = [
            line if line.startswith("#") or "_total" not in line.split("{")[0] or FAILED.search(line)
            else f"{line.rpartition(' ')[0]} {float(line.rpartition(' ')[2]) + scrapes * (10_000 if '_tokens_total' in line else 100)}"
            for line in body.split("\n")
        ]  # fmt: skip
        await request.answer("\n".join(lines))

    return metrics


def values(text):
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
    }


def target(status, name="a"):
    return next((t for t in status["targets"] if t["name"] == name), None)


def is_up(status, name="a"):
    found = target(status, name)
    return bool(found and found["signals"] and found["signals"]["up"])


async def test_what_it_serves_is_what_the_engine_said():
    """From the process's start to a scrape of its metrics: the gauges are the engine's own."""
    async with wire() as server:
        engine_routes(server)
        async with daemon("--target", f"a={server.url}") as process:
            await process.until(is_up)
            _, text = await process.get("/metrics")
            engine = {"target": "a", "engine": "0", "model_name": "example/model-8b"}
            ready = await process.get("/-/ready")

    ours, raw = values(text), values(BODY)
    of = tuple(sorted({"engine": "0", "model_name": "example/model-8b"}.items()))
    for name, wire_name in (
        ("requests_running", "vllm:num_requests_running"),
        ("requests_waiting", "vllm:num_requests_waiting"),
        ("kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"),
    ):
        assert (
            ours[f"vllm_watch_engine_{name}", tuple(sorted(engine.items()))] == raw[wire_name, of]
        )
    assert ours["vllm_watch_target_up", (("target", "a"),)] == 1
    assert ready[0] == 200


async def test_sigterm_ends_it_at_once_and_frees_the_port():
    async with daemon("--target", "a=http://127.0.0.1:1") as process:
        port = int(process.url.rpartition(":")[2])
        assert await process.end(signal.SIGTERM) == 0
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))
    assert all("timestamp" in line for line in process.lines)  # no traceback, no stray print


async def test_sigterm_ends_it_while_a_target_hangs_and_a_viewer_watches():
    """Neither a scrape under way nor an open event stream holds it back."""

    async def silence(request):
        await request.reader.read()

    async with wire(metrics=silence) as server:
        async with daemon("--target", f"a={server.url}") as process:
            stream = asyncio.create_task(process.bytes("/api/v1/events"))
            await asyncio.sleep(0.3)
            assert await process.end(signal.SIGTERM) == 0
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)


async def test_without_a_target_it_finds_the_servers_of_this_host(tmp_path):
    """`vllm-watch run` alone: the page shows the vLLM on another port than the usual one, and the log says it."""
    serve = ("serve", "org/model-8b", "--port", "{port}")
    async with vllm_serve(tmp_path, *serve) as (_, port), daemon() as process:
        status = await process.until(lambda status: is_up(status, f"vllm-{port}"))
        said = [line["text"] for line in process.events("vllm_found")]
    assert target(status, f"vllm-{port}")["url"] == f"http://127.0.0.1:{port}"
    assert any(f"model-8b at :{port}" in text for text in said)


async def test_a_taken_port_is_said_in_two_lines():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with daemon(listen=f"127.0.0.1:{taken.getsockname()[1]}") as process:
            assert await asyncio.wait_for(process.process.wait(), 15) == 2
    said = "".join(line["text"] for line in process.lines if "text" in line)
    assert said.startswith("vllm-watch: ")
    assert "\n  → " in said
    assert "Traceback" not in said


def write(path, text):
    path.write_text(text)


@pytest.mark.parametrize("how", ["SIGHUP", "POST"])
async def test_a_reload_takes_the_new_configuration_and_keeps_what_did_not_change(tmp_path, how):
    """A target is added, another goes with all its series, the third goes on with its history."""
    config = tmp_path / "w.yaml"
    async with wire() as server:
        server.on("/one/metrics", growing())
        for name in ("two", "three"):
            server.on(f"/{name}/metrics", BODY)
        places = {
            name: f"  - {{name: {name}, url: '{server.url}/{name}'}}\n"
            for name in ("one", "two", "three")
        }
        write(config, "targets:\n" + places["one"] + places["two"])
        async with daemon("--config", config) as process:
            await process.until(lambda s: is_up(s, "one") and is_up(s, "two"))
            await process.until(
                lambda s: target(s, "one")["signals"]["engines"]["0"][
                    "generation_tokens_per_second"
                ]
            )
            write(config, "targets:\n" + places["one"] + places["three"])
            if how == "SIGHUP":
                process.process.send_signal(signal.SIGHUP)
            else:
                assert (await process.get("/-/reload", "POST"))[0] == 200
            status = await process.until(lambda s: is_up(s, "three"))
            _, text = await process.get("/metrics")

    assert [t["name"] for t in status["targets"]] == ["one", "three"]
    assert target(status, "one")["signals"]["engines"]["0"]["generation_tokens_per_second"] > 0
    assert 'target="two"' not in text
    assert len(process.events("target_added")) == 3  # one was not taken down and up again


@pytest.mark.parametrize("how", ["SIGHUP", "POST"])
async def test_a_wrong_new_configuration_is_refused_and_the_old_one_goes_on(tmp_path, how):
    """What is wrong is said, to whoever asked and in the log; nothing changes."""
    config = tmp_path / "w.yaml"
    async with wire() as server:
        engine_routes(server)
        write(config, f"targets: [{{name: a, url: '{server.url}'}}]\n")
        async with daemon("--config", config) as process:
            await process.until(is_up)
            write(config, "targets: [{name: a, url: 'ftp://x'}]\n")
            if how == "POST":
                status, said = await process.get("/-/reload", "POST")
                assert status == 500
                assert "ftp://x" in said
            else:
                process.process.send_signal(signal.SIGHUP)
                while not process.events("reload_refused"):
                    await asyncio.sleep(0.05)
            scrapes = len(server.requests)
            async with asyncio.timeout(20):
                while len(server.requests) == scrapes:
                    await asyncio.sleep(0.02)
            assert is_up(await process.status())
    assert "ftp://x" in process.events("reload_refused")[0]["cause"]


async def test_one_line_per_change_of_state_and_none_per_look():
    """Dozens of looks at a healthy engine and a missing one are two lines."""
    async with wire() as server:
        server.on("/metrics", growing())
        async with daemon(
            "--target", f"a={server.url}", "--target", "b=http://127.0.0.1:1"
        ) as process:
            await process.until(
                lambda s: target(s)["sources"].get("metrics", {}).get("calls", 0) >= 20
            )
            await process.end()
    told = [line["event"] for line in process.lines if line.get("target")]
    assert sorted(told) == ["target_added", "target_added", "target_starting", "target_up"]


async def test_a_recording_of_the_daemon_replays_to_the_same_signals(tmp_path):
    """Live and replay run the same judgement: what the page showed is what the recording gives."""
    trace = tmp_path / "t.jsonl.gz"
    async with wire() as server:
        engine_routes(server)
        server.on("/metrics", growing())
        async with daemon("--target", f"a={server.url}") as process:
            await process.until(
                lambda s: target(s)["sources"].get("metrics", {}).get("calls", 0) >= 10
            )
            for _ in range(20):  # until no look came between the status and the recording
                live = target(await process.status())["signals"]
                trace.write_bytes(await process.bytes("/api/v1/recording?target=a&minutes=5"))
                last = json.loads(gzip.decompress(trace.read_bytes()).splitlines()[-1])
                if last["t"] == live["t"]:
                    break
    replayed = await cli("replay", trace, "--state", "--json")

    assert replayed["t"] == live["t"]
    assert replayed["state"] == live["state"]
    assert replayed["engines"]["0"]["generation_tokens"] > 0
    signals = replayed["signals"]["engines"]["0"]
    for name in (
        "generation_tokens_per_second",
        "steps_per_second",
        "kv_cache_usage_ratio",
        "time_to_first_token_seconds",
    ):
        assert signals[name] == live["engines"]["0"][name], name


async def cli(*arguments):
    command = (sys.executable, "-m", "vllm_watch", *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=-1)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    return json.loads(out)


async def test_a_driver_that_hangs_delays_nothing(tmp_path):
    """An NVML call that does not return is reported; scrapes and serving go on at their pace."""
    stub = NvmlStub(tmp_path)
    stub.build()
    stub.set_state(gpus={0: h200(0)}, hang__nvmlDeviceGetMemoryInfo_v2=3600)
    environ = stub.env() | {
        "VLLM_WATCH_GPU__DEADLINE_SECONDS": "0.5",
        "VLLM_WATCH_GPU__INTERVAL_SECONDS": "0.2",
    }
    async with wire() as server:
        engine_routes(server)
        async with daemon("--target", f"a={server.url}", environ=environ) as process:
            await process.until(lambda s: s["gpus"] and s["gpus"]["status"] == "hung")
            status = await process.until(lambda s: "metrics" in target(s)["sources"])
            calls = target(status)["sources"]["metrics"]["calls"]
            await process.until(lambda s: target(s)["sources"]["metrics"]["calls"] >= calls + 10)
            assert (await process.get("/metrics"))[0] == 200
            assert await process.end() == 0


async def test_gpus_are_shown_with_their_holders(tmp_path):
    """The real pynvml over a driver that says what it holds, through to the metrics."""
    stub = NvmlStub(tmp_path)
    stub.build()
    stub.set_state(gpus={0: h200(0, processes={1: 7 << 30})})
    async with daemon("--target", "a=http://127.0.0.1:1", environ=stub.env()) as process:
        status = await process.until(lambda s: s["gpus"] and s["gpus"]["status"] == "ok")
        _, text = await process.get("/metrics")
        await process.until(lambda s: "metrics" in target(s)["sources"])
        await process.until(lambda s: target(s)["sources"]["metrics"]["calls"] >= 8)
        kept = gzip.decompress(await process.bytes("/api/v1/recording?target=a&minutes=5"))
    gpu = status["gpus"]["gpus"][0]
    # What is judged of a server on this host is judged with its GPUs, live as in the recording.
    assert json.loads(kept.splitlines()[-1])["gpus"][0]["uuid"] == gpu["uuid"]
    assert gpu["processes"][0]["used_bytes"] == 7 << 30
    assert (
        values(text)["vllm_watch_gpu_memory_total_bytes", (("gpu", gpu["uuid"]),)]
        == gpu["memory_total_bytes"]
    )


async def test_the_demo_is_alive_within_seconds():
    async with daemon(command="demo") as process:
        status = await process.until(lambda s: sum(is_up(s, t["name"]) for t in s["targets"]) >= 3)
        page = await process.get("/")
    assert status["gpus"]["gpus"]
    assert page[0] == 200
