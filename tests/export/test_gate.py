"""The gate's endpoints over real requests: what a probe is answered, and that nothing else comes of asking."""

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest

from tests.export.serving import serving
from vllm_watch.board.board import Board
from vllm_watch.board.restarts import Probes
from vllm_watch.samples.target import Target


class Keeper:
    """Answers what a test tells it to, and remembers who asked."""

    def __init__(self):
        self.asked, self.meant = [], None

    async def answer(self, target, which, started_t, source):
        self.asked.append((target, which, started_t, source))
        return self.meant

    def probes(self, target):
        return Probes(liveness_asked_seconds=3.5, starts=(1795000000.0,))


@pytest.fixture
async def site():
    keeper = Keeper()
    board = Board(window_seconds=30)
    board.add_target(Target(name="llama", url="http://127.0.0.1:1"), 5.0)
    board.add_target(Target(name="away", url="http://192.0.2.1:1"), 5.0)
    board.add_target(Target(name="named", url="http://engine.test:1"), 5.0)
    async with (
        serving(board, gatekeeper=keeper) as server,
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
    ):
        yield keeper, session


STRANGERS = {
    "another address": ({"X-Forwarded-For": "10.0.0.1"}, "away", 200, False),
    "through a proxy of this host": ({"X-Forwarded-For": "10.0.0.1"}, "llama", 200, False),
    "the engine's address": ({"X-Forwarded-For": "10.0.0.1"}, "named", 200, True),
    "this host": ({}, "away", 200, True),
    "a page of another site": ({"Sec-Fetch-Site": "cross-site"}, "llama", 403, False),
    "a page of another origin": ({"Origin": "http://evil.example"}, "llama", 403, False),
}


@pytest.mark.parametrize(
    ("headers", "target", "status", "heard"), STRANGERS.values(), ids=STRANGERS
)
async def test_only_what_may_be_a_probe_is_heard(site, monkeypatch, headers, target, status, heard):
    """It counts as a probe, is written down, and says when its container began: that is not for everybody."""
    keeper, session = site
    keeper.meant = 1795000000.4
    loop = asyncio.get_running_loop()
    known = loop.getaddrinfo

    async def resolved(host, *more, **options):
        return await known("127.0.0.1" if host == "engine.test" else host, *more, **options)

    monkeypatch.setattr(loop, "getaddrinfo", resolved)
    response = await session.get(f"/gate/liveness?target={target}", headers=headers)
    assert response.status == status
    assert bool(keeper.asked) is heard
    if status == 200:
        assert await response.text() == ("kill 1795000000\n" if heard else "ok\n")


@pytest.mark.parametrize(
    "via",
    ["", "X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP", "X-Not-Known"],
)
async def test_a_proxy_at_the_pods_own_address_is_no_probe(site, monkeypatch, via):
    """The pod's address in place of loopback's, which no test can count on."""
    keeper, session = site
    monkeypatch.setattr("vllm_watch.export.callers.is_loopback", lambda _: False)
    monkeypatch.setattr("vllm_watch.export.gate.is_loopback", lambda host: host == "localhost")
    monkeypatch.setattr("vllm_watch.export.gate.urlsplit", lambda _: SimpleNamespace(hostname="localhost"))  # fmt: skip
    response = await session.get("/gate/liveness?target=llama", headers={via: "10.0.0.1"} if via else {})  # fmt: skip
    assert response.status == 200
    assert bool(keeper.asked) is (not via)


@pytest.mark.parametrize(
    ("path", "meant", "said"),
    [
        ("liveness?target=llama", None, "ok\n"),
        ("liveness?target=llama&asked=12-7.5", None, "ok 12-7.5\n"),
        ("liveness?target=llama&asked=12-7.5", 1795000000.4, "kill 1795000000 12-7.5\n"),
        ("readiness?target=llama&asked=12-7.5", 1795000000.4, "no 1795000000 12-7.5\n"),
    ],
)
async def test_probe_is_answered_in_one_line(site, path, meant, said):
    """Always with HTTP 200, never to be kept by a cache."""
    keeper, session = site
    keeper.meant = meant
    response = await session.get(f"/gate/{path}")
    assert (response.status, await response.text()) == (200, said)
    assert response.headers["Cache-Control"] == "no-store"
    assert response.content_type == "text/plain"


@pytest.mark.parametrize(
    ("started", "heard"),
    [("1795000000.5", 1795000000.5), ("", None), ("nan", None), ("inf", None), ("-1", None), ("1e300", None), ("x", None)],
)  # fmt: skip
async def test_start_that_a_probe_tells_is_passed_on(site, started, heard):
    """What is no time is as if it had not been told."""
    keeper, session = site
    response = await session.get("/gate/liveness", params={"target": "llama", "started": started})
    assert response.status == 200
    assert keeper.asked == [("llama", "liveness", heard, "127.0.0.1")]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "liveness", 404), ("GET", "liveness?target=other", 404), ("GET", "other?target=llama", 404),
        ("GET", "probes?target=other", 404), ("POST", "liveness?target=llama", 405),
        ("GET", "liveness?target=llama&asked=a%20b", 400), ("GET", "liveness?target=llama&asked=" + "a" * 41, 400),
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(site, method, path, status):
    """Such a probe hears no word of the gate, and so does not fail."""
    keeper, session = site
    keeper.meant = 1795000000.0
    response = await session.request(method, f"/gate/{path}")
    assert response.status == status
    assert not (await response.text()).startswith(("kill", "no "))
    assert keeper.asked == []


async def test_probes_that_ask_can_be_seen(site):
    _, session = site
    response = await session.get("/gate/probes?target=llama")
    assert await response.json() == {"liveness_asked_seconds": 3.5, "starts": [1795000000.0]}
