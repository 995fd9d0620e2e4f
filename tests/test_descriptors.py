"""Few descriptors, many engines: the daemon answers its callers, watches all in turn, and ends cleanly."""

import asyncio
import contextlib
import re
import resource
from pathlib import Path

from tests.daemon_process import daemon
from tests.sources.wire import wire
from tests.test_daemon import engine_routes
from vllm_watch.sources import http
from vllm_watch.sources.http import Session
from vllm_watch.support import descriptors

LIMITS = http.Limits(10.0, 20.0, 100_000)
LIMIT, TARGETS = 96, 40


async def test_engines_leave_the_callers_some(tmp_path: Path) -> None:
    """40 engines under a limit of 96, of which each would have five: all are up, and SIGTERM ends it with 0."""

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(wire()) for _ in range(TARGETS)]
        for server in servers:
            engine_routes(server)
        named = [
            word for n, server in enumerate(servers) for word in ("--target", f"t{n}={server.url}")
        ]
        environ = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "1"}
        async with daemon(
            *named, "--state-dir", tmp_path / "state", environ=environ, preexec_fn=few
        ) as process:
            await process.until(
                lambda said: (
                    sum(bool(each["signals"] and each["signals"]["up"]) for each in said["targets"])
                    == TARGETS
                ),
                seconds=60,
            )
            for _ in range(5):
                assert (await process.get("/-/healthy"))[0] == 200
            [said] = process.events("few_descriptors")
            assert (said["limit"], said["targets"]) == (LIMIT, TARGETS)
            assert "ulimit -n" in said["remedy"]
            assert await process.end() == 0
        assert [line for line in process.lines if "Traceback" in str(line)] == []


async def test_the_soft_limit_is_raised_as_far_as_it_may_be() -> None:
    """A shell gives 1,024 of a million."""

    def soft() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))

    async with daemon("--target", "a=http://127.0.0.1:1", preexec_fn=soft) as process:
        limits = Path(f"/proc/{process.process.pid}/limits").read_text()
        assert re.search(r"Max open files +(\d+) +(\d+)", limits).groups() == ("4096", "4096")
        assert process.events("few_descriptors") == []
        assert await process.end() == 0


async def test_it_ends_cleanly_without_a_single_descriptor_left(tmp_path: Path) -> None:
    """Whoever took them: SIGTERM is status 0, and what it knew is on disk."""
    async with wire() as server:
        engine_routes(server)
        async with daemon(
            "--target", f"a={server.url}", "--state-dir", tmp_path / "state"
        ) as process:
            await process.until(lambda said: said["targets"] and said["targets"][0]["signals"])
            resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE, (3, 3))
            assert await process.end() == 0
        assert [line for line in process.lines if "Traceback" in str(line)] == []


def test_what_each_may_have_is_within_the_limit(monkeypatch) -> None:
    """However small the limit is, each has some; none is promised twice."""
    for limit in (8, 16, 64, 96, 256, 1024, 4096, 65_536, 1 << 20):
        monkeypatch.setattr(descriptors, "limit", lambda limit=limit: limit)
        callers, engines = descriptors.for_callers(), descriptors.for_engines()
        assert callers >= 1
        assert engines >= 1
        assert callers + engines + min(descriptors.OWN, limit // 4) <= limit
    monkeypatch.setattr(descriptors, "limit", lambda: 1024)
    assert (descriptors.for_callers(), descriptors.for_engines()) == (512, 448)


async def ended(session, server, path="metrics", limits=LIMITS):
    """How a call ends."""
    return (await http.get(session, f"{server.url}/{path}", limits, {})).call


async def test_an_idle_connection_makes_room() -> None:
    """The one that has been idle longest, of whichever server."""
    routes = {"metrics": "x 1\n"}
    servers = wire(**routes), wire(**routes), wire(**routes)
    async with (
        servers[0] as a,
        servers[1] as b,
        servers[2] as c,
        Session(connections_max=2) as session,
    ):
        for server in (a, b, a, b):
            assert (await ended(session, server)).outcome == "ok"
        assert (a.connections, b.connections, session.connections) == (1, 1, 2)
        assert (await ended(session, c)).outcome == "ok"
        assert session.connections == 2
        assert (await ended(session, b)).outcome == "ok"
        assert b.connections == 1  # kept: a's made room


async def test_who_waits_for_a_place_has_all_its_time_after() -> None:
    """Its time is the server's, and neither what it waited nor its latency holds our own turn."""
    free = asyncio.Event()

    async def slow(request) -> None:
        await free.wait()
        await request.answer("x 1\n")

    async with wire(metrics=slow, health="") as server, Session(connections_max=1) as session:
        first = asyncio.create_task(ended(session, server))
        while not server.requests:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(ended(session, server, "health"))
        began_s = asyncio.get_running_loop().time()
        while not session._waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        free.set()
        assert (await first).outcome == "ok"
        call = await second
        assert call.outcome == "ok"
        waited_s = asyncio.get_running_loop().time() - began_s
        assert call.latency_s <= waited_s - 0.5


async def test_no_place_in_time_says_nothing_of_the_engine() -> None:
    """Outcome `watcher`: no engine is down because we have no descriptor."""

    async def never(_) -> None:
        await asyncio.sleep(60)

    async with wire(metrics=never, health="") as server, Session(connections_max=1) as session:
        first = asyncio.create_task(ended(session, server))
        while not server.requests:
            await asyncio.sleep(0.01)
        call = await ended(session, server, "health", http.Limits(0.1, 0.2, 100))
        assert call.outcome == "watcher"
        assert "LimitNOFILE" in call.error
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (await ended(session, server, "health")).outcome == "ok"


async def test_a_place_is_given_back_however_a_call_ends() -> None:
    """Refused, cancelled while it connects, broken off: the next one connects."""

    async def reset(request) -> None:
        request.reset()

    async with wire(metrics=reset, health="") as server, Session(connections_max=1) as session:
        for _ in range(3):
            await http.get(session, "http://127.0.0.1:1/metrics", LIMITS, {})
            await ended(session, server)
            going = asyncio.create_task(ended(session, server, "health"))
            await asyncio.sleep(0)
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
        assert (await ended(session, server, "health")).outcome == "ok"
