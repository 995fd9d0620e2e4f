"""The lab on real sockets: vLLM's endpoints, and what each fault looks like to a client."""

import asyncio
import contextlib
import socket
import time
from urllib.parse import urlsplit

import aiohttp
import pytest

from vllm_watch.errors import ServeError
from vllm_watch.lab.live import LabServer, Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm

SPEED = 20.0
PATIENCE_SECONDS = 60.0  # of a machine that is busy


class Bench:
    """A live server named "a" and a client for it."""

    def __init__(self, **options):
        self.vllm = SimulatedVllm("a", **options)
        self.live = Live(Scene([self.vllm]), SPEED)

    async def __aenter__(self):
        (self.target,) = await self.live.start()
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        self.session = aiohttp.ClientSession(self.target.url, timeout=timeout)
        return self

    async def __aexit__(self, *_):
        await self.session.close()
        await self.live.stop()

    async def get(self, path, seconds=PATIENCE_SECONDS, **options):
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self.session.get(path, timeout=timeout, **options) as response:
            return response.status, await response.read(), response.headers

    async def complete(self, path="/v1/completions", **body):
        async with self.session.post(path, json=body) as response:
            return response.status, await response.json()

    async def connects(self):
        """Does the port accept a connection?"""
        await asyncio.sleep(0.01)
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(self.target.url).port)
        except ConnectionError:  # refused, or reset while the socket is being closed
            return False
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return True

    async def until(self, condition):
        """Wait for what the lab's clock brings about."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            await asyncio.sleep(0.01)


async def test_endpoints():
    async with Bench(model_name="example/model-8b", max_model_len=4096) as bench:
        status, body, headers = await bench.get("/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=")
        assert b"vllm:num_requests_running" in body
        assert (await bench.get("/health"))[:2] == (200, b"")
        assert (await bench.get("/version"))[1] == b'{"version": "0.33.0"}'
        assert b'"max_model_len": 4096' in (await bench.get("/v1/models"))[1]
        assert (await bench.get("/is_sleeping"))[1] == b'{"is_sleeping": false}'
        assert (await bench.get("/is_paused"))[1] == b'{"is_paused": false}'
        assert (await bench.get("/no-such-path"))[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer key"}, 200)],
)
async def test_a_key_guards_v1_and_nothing_else(headers, status):
    """As in vLLM, /metrics and /health stay open."""
    async with Bench(api_key="key") as bench:
        assert (await bench.get("/v1/models", headers=headers))[0] == status
        assert (await bench.get("/metrics", headers=headers))[0] == 200
        assert (await bench.get("/health", headers=headers))[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "prompt_tokens"),
    [
        ("/v1/completions", {"prompt": "x" * 400}, 100),
        ("/v1/completions", {"prompt": [1, 2, 3]}, 3),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 400}]}, 109),
    ],
)
async def test_a_completion_takes_its_simulated_time(path, body, prompt_tokens):
    """It is answered when the simulated request ends, with its usage, and is counted."""
    async with Bench() as bench:
        begin_s = time.monotonic()
        status, answer = await bench.complete(path, max_tokens=200, **body)
        elapsed_s = time.monotonic() - begin_s
        _, metrics, _ = await bench.get("/metrics")

    assert status == 200
    assert answer["usage"]["prompt_tokens"] == prompt_tokens
    assert answer["usage"]["completion_tokens"] == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert elapsed_s > 200 * 0.008 / SPEED
    assert (
        b'vllm:generation_tokens_total{engine="0",model_name="example/model-8b"} 200.0' in metrics
    )
    assert f'http_requests_total{{handler="{path}"'.encode() in metrics


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": "x", "max_tokens": 10_000}, 400),
        ({"prompt": "x", "max_tokens": "many"}, 400),
        ([], 400),
    ],
)
async def test_requests_that_no_engine_would_take(body, status):
    """Too long for the model, or not a request at all."""
    async with Bench() as bench, bench.session.post("/v1/completions", json=body) as response:
        assert response.status == status


async def test_a_client_that_goes_away_frees_its_pages():
    async with Bench(max_model_len=10**9) as bench:
        engine = bench.vllm.engines[0]
        asked = asyncio.create_task(bench.complete(prompt="x", max_tokens=10**8))
        await bench.until(lambda: engine.num_running == 1)
        asked.cancel()
        await bench.until(lambda: engine.num_running == 0)
        assert engine.kv.used_blocks == 0
        assert engine.ledger.success["abort"] == 1


async def test_crash_refuses_connections_and_a_restart_serves_again():
    """The port stays ours meanwhile: same address, first refused, then a server with new counters."""
    async with Bench() as bench:
        await bench.complete(prompt="x", max_tokens=5)
        bench.vllm.fault("crash")
        while await bench.connects():
            pass
        with pytest.raises(aiohttp.ClientConnectorError):
            await bench.get("/health")
        bench.vllm.clear("crash")
        while not await bench.connects():
            pass
        _, metrics, _ = await bench.get("/metrics")
    assert b'vllm:generation_tokens_total{engine="0",model_name="example/model-8b"} 0.0' in metrics


async def test_api_hang_accepts_and_says_nothing():
    """The connection stands, no byte comes; when it ends, who still waits is answered."""
    async with Bench() as bench:
        bench.vllm.fault("api_hang")
        with pytest.raises(TimeoutError):
            await bench.get("/metrics", seconds=0.3)
        waiting = asyncio.create_task(bench.get("/health"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        bench.vllm.clear("api_hang")
        assert (await waiting)[0] == 200


async def test_a_hung_engine_does_not_hear_of_clients_that_go():
    """As with a stopped EngineCore of vLLM: no counter moves, no gauge falls, until it goes on."""
    async with Bench(max_model_len=10**9) as bench:
        engine = bench.vllm.engines[0]
        running = asyncio.create_task(bench.complete(prompt="x", max_tokens=10**8))
        await bench.until(lambda: engine.num_running == 1)
        bench.vllm.fault("hang")
        unseen = asyncio.create_task(bench.complete(prompt="x", max_tokens=1))
        await bench.until(lambda: bench.vllm.outstanding == 2)
        running.cancel()
        unseen.cancel()
        await bench.until(lambda: bench.vllm.outstanding == 1)
        await asyncio.sleep(0.2)
        assert engine.num_running == 1
        assert engine.ledger.success["abort"] == 0
        bench.vllm.clear("hang")
        await bench.until(lambda: engine.num_running == 0)
        assert engine.ledger.success["abort"] == 1


async def test_a_taken_port_is_an_error_with_a_remedy():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"127.0.0.1:{port}: Address already in use"):
            async with LabServer(SimulatedVllm("a"), lambda: 0.0, port=port):
                pass


async def test_metrics_are_packed_only_if_asked():
    """With gzip allowed the body is a quarter of its size; without, it is plain."""
    async with Bench() as bench:
        plain = await bench.get("/metrics", headers={"Accept-Encoding": "identity"})
        packed = await bench.get("/metrics", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain[2]
    assert packed[2]["Content-Encoding"] == "gzip"
    assert int(packed[2]["Content-Length"]) < len(plain[1]) / 4
    assert packed[1].startswith(b"# HELP python_gc_objects_collected_total")


async def test_crash_fails_the_requests_in_flight():
    """Who waits for an answer gets an error, not silence."""
    async with Bench(max_model_len=10**9) as bench:
        asked = asyncio.create_task(bench.complete(prompt="x", max_tokens=10**8))
        await bench.until(lambda: bench.vllm.outstanding == 1)
        bench.vllm.fault("crash")
        try:
            status, _ = await asked
        except aiohttp.ClientError:
            status = None
    assert status in {None, 500}


async def test_engine_dead_and_paused_refuse_work():
    """/health tells the first, and nothing but /is_paused the second."""
    async with Bench() as bench:
        bench.vllm.paused = True
        assert (await bench.complete(prompt="x"))[0] == 503
        assert (await bench.get("/health"))[0] == 200
        assert (await bench.get("/is_paused"))[1] == b'{"is_paused": true}'
        bench.vllm.paused = False
        bench.vllm.fault("engine_dead")
        assert (await bench.get("/health"))[0] == 503
        assert (await bench.get("/metrics"))[0] == 200
        assert (await bench.complete(prompt="x"))[0] == 500


async def test_a_server_can_be_used_alone():
    """Without a scene: whoever holds it keeps its time."""
    async with (
        LabServer(SimulatedVllm("a"), lambda: 0.0) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/health") as response,
    ):
        assert response.status == 200
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))


async def test_stopping_a_silent_server_does_not_wait_for_its_clients():
    """A client that hangs on a hung API server is cut off when the lab ends."""
    async with Bench() as bench:
        bench.vllm.fault("api_hang")
        waiting = asyncio.create_task(bench.get("/health", seconds=3600.0))
        await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            await bench.live.stop()
        with pytest.raises(aiohttp.ClientError):
            await waiting
