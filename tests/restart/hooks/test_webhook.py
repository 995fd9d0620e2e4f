"""The webhook hook against real sockets: a server that answers, and every way in which one does not."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web

from tests.restart.hooks.calls import CALL
from tests.restart.waits import Waits
from tests.sources.wire import black_hole, wire
from vllm_watch.clients import signed_post
from vllm_watch.clients.signed_post import Posted
from vllm_watch.restart.hooks import base, webhook
from vllm_watch.settings.hooks import WebhookHook

NOW = 1_795_000_000.0
PAGE = Path(__file__).parents[3] / "docs/hooks/webhook.md"


def hook(url, **more):
    settings = WebhookHook(name="a", url=url, **({"timeout_seconds": 20.0} | more))
    return webhook.Hook(settings, base.Tools(unix_time=lambda: NOW))


async def post(url, **more):
    return await hook(url, **more).restart(CALL)


def answering(*statuses, headers=None):
    """Answer with one status after the other, the last for ever."""
    left = list(statuses)

    async def answer(request):
        status = left.pop(0) if len(left) > 1 else left[0]
        said = "" if status.startswith("2") else "said so"
        await request.answer(said, status=status, headers=headers)

    return answer


@pytest.fixture
async def receiver():
    """A receiver as people write them, with aiohttp; what it was sent is kept."""
    got = []

    async def handle(request):
        got.append((request.headers, await request.read()))
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/restart", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/restart", got
    await runner.cleanup()


async def test_receiver_is_told_everything(receiver, tmp_path):
    """One POST of JSON, with the attempt as its idempotency key, and a signature."""
    url, got = receiver
    (tmp_path / "secret").write_text("swordfish\n")
    result = await post(url, secret_file=tmp_path / "secret")
    assert (result.outcome, result.text) == ("done", f"{url.removesuffix('/restart')} answered 202")
    [(headers, body)] = got
    assert json.loads(body) == CALL.payload()
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == headers["X-Vllm-Watch-Attempt"] == CALL.attempt_id
    assert headers["X-Vllm-Watch-Timestamp"] == "1795000000"
    assert re.fullmatch("sha256=[0-9a-f]{64}", headers["X-Vllm-Watch-Signature"])


@pytest.mark.parametrize("changed", [
    {}, {"now": NOW + 301}, {"now": NOW - 301}, {"body": b"{}"}, {"X-Vllm-Watch-Timestamp": "1795000001"},
    {"X-Vllm-Watch-Signature": ""},
])  # fmt: skip
async def test_example_of_the_page_verifies(receiver, tmp_path, changed):
    """The ten lines that docs/hooks/webhook.md gives receivers take our requests, and no others."""
    url, got = receiver
    (tmp_path / "secret").write_text("swordfish")
    await post(url, secret_file=tmp_path / "secret")
    [(headers, body)] = got
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    headers = dict(headers) | {k: v for k, v in changed.items() if k.startswith("X-")}
    body, now = changed.get("body", body), changed.get("now", NOW)
    assert names["verified"](b"swordfish", headers, body, now) is (changed == {})


@pytest.mark.parametrize(
    ("statuses", "outcome", "requests"),
    [
        (["200 OK"], "done", 1),
        (["400 Bad Request"], "refused", 1),
        (["409 Conflict"], "refused", 1),
        (["503 Service Unavailable", "200 OK"], "done", 2),
        (["429 Too Many Requests"], "failed", 3),
        (["503 Service Unavailable", "500 Internal Server Error"], "uncertain", 2),
    ],
)
async def test_status_is_the_outcome(statuses, outcome, requests):
    """Only what surely did nothing is sent again, with the same key; what may have acted never is."""
    async with wire() as server:
        server.on("/restart", answering(*statuses))
        result = await post(f"{server.url}/restart", retries=2)
        assert (result.outcome, len(server.requests)) == (outcome, requests), result.text
        keys = {request.headers["idempotency-key"] for request in server.requests}
        assert keys == {CALL.attempt_id}
        if outcome != "done":
            assert result.text.endswith("said so")


async def test_redirect_is_not_followed():
    """Another host could be anybody's: what was signed for one goes to no other."""
    async with wire() as there, wire() as here:
        there.on("/restart", b"")
        here.on("/restart", answering("307 Moved", headers={"Location": f"{there.url}/restart"}))
        result = await post(f"{here.url}/restart")
        assert (result.outcome, there.requests) == ("refused", [])
        assert "redirects are not followed" in result.text


async def test_who_is_not_there_did_nothing():
    """A refused connection and a name that is none are tried again; where packets vanish the call ends within its time."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for url in (f"http://127.0.0.1:{unused.getsockname()[1]}/", "http://no-such-host.invalid/"):
            began = time.monotonic()
            result = await post(url, retries=1)
            assert result.outcome == "failed", result.text
            assert "cannot be reached" in result.text
            assert time.monotonic() - began >= 0.5
    with black_hole() as port:
        result = await post(f"http://127.0.0.1:{port}/", timeout_seconds=2.0)
    assert result.outcome == "failed", result.text


async def swallow(request):
    await asyncio.sleep(60)


async def drip(request):
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1000:
        await request.raw(bytes([byte]))
        await asyncio.sleep(0.05)


async def reset(request):
    request.reset()


async def endless_headers(request):
    await request.raw(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        await request.raw(f"X-{number}: {'x' * 1000}\r\n".encode())


async def no_http(request):
    await request.raw(b"\x00\x01\x02 what\r\n\r\n")


@pytest.mark.parametrize("behaviour", [reset, no_http, endless_headers, swallow, drip])
async def test_what_was_sent_and_not_answered_may_have_acted(behaviour):
    """A black hole, a drip, a broken connection, headers without end, nonsense: uncertain, sent once, and in time."""
    async with wire() as server:
        server.on("/restart", behaviour)
        async with asyncio.timeout(60):
            result = await post(f"{server.url}/restart", timeout_seconds=2.0)
        assert (result.outcome, len(server.requests)) == ("uncertain", 1), result.text


@pytest.mark.parametrize(("status", "outcome"), [("200 OK", "done"), ("500 Oh", "uncertain")])
async def test_huge_answer_is_not_read(status, outcome):
    """The status is the answer: of a body without end at most a line is read."""

    async def huge(request):
        await request.raw(f"HTTP/1.1 {status}\r\nContent-Length: 100000000000\r\n\r\n".encode())
        while True:
            await request.raw(b"x" * 65536)

    async with wire() as server:
        server.on("/restart", huge)
        result = await post(f"{server.url}/restart", timeout_seconds=10.0)
    assert result.outcome == outcome
    assert len(result.text) < 1000
    assert ("xxx" in result.text) is (outcome != "done")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that nobody has signed but itself."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        capture_output=True, timeout=600, check=True,
    )  # fmt: skip
    return folder


async def test_who_cannot_prove_its_name_is_sent_nothing(certificate):
    """TLS is verified: neither a call nor its signature goes to somebody else, and it is not tried again."""
    got = []

    async def handle(reader, writer):
        got.append(await reader.read(1))
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}/restart"
        result = await post(url)
        findings = await hook(url).rehearse(CALL)
    assert result.outcome == "failed"
    assert "is not trusted" in result.text
    assert [finding.ok for finding in findings] == [True, False, True]
    assert got == []


async def test_secret_is_read_at_each_call(receiver, tmp_path):
    """A secret that was rotated is used by the next call; one that is empty sends nothing."""
    url, got = receiver
    file = tmp_path / "secret"
    signing = hook(url, secret_file=file)
    file.write_text("\n")
    assert (await signing.restart(CALL)).text == "secret_file is empty"
    assert got == []
    for secret in ("one", "two"):
        file.write_text(secret)
        await signing.restart(CALL)
    one, two = (headers["X-Vllm-Watch-Signature"] for headers, _ in got)
    assert one != two


async def test_no_secret_of_the_url_is_shown():
    async with wire() as server:
        result = await post(f"{server.url}/t0ken?token=hunter2")
        assert server.requests[0].path == "/t0ken?token=hunter2"
    assert "hunter2" not in result.text
    assert "t0ken" not in result.text


class Scripted:
    """A receiver whose answers are told; each takes `took` seconds of a clock that nobody waits for."""

    def __init__(self, monkeypatch, answers, took=0.0):
        self.left = []
        self.answers, self.took = list(answers), took
        loop = SimpleNamespace(time=lambda: 5000.0 + self.took * len(self.left) + sum(self.waited))
        self.waited = Waits(monkeypatch, webhook, get_running_loop=lambda: loop).seconds
        monkeypatch.setattr(webhook.signed_post, "post", self.post)

    async def post(self, session, url, body, headers, seconds, now):
        self.left.append(seconds)
        return self.answers.pop(0)


def away():
    return Posted(signed_post.NOT_REACHED, "it is away")


def said(status, retry_after=0.0):
    return Posted(signed_post.ANSWERED, f"it said {status}", status, retry_after)


ANSWERS = {
    # answers, retries, timeout: outcome, waits, what is left of the time at each
    "away, longer each time": (
        [away() for _ in range(11)], 10, 900, "failed", [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30],
        [900, 899.5, 898.5, 896.5, 892.5, 884.5, 868.5, 838.5, 808.5, 778.5, 748.5]),
    "asks for more": ([said(429, 20.0), said(200)], 3, 900, "done", [20], [900, 880]),
    "asks for an hour": ([said(429, 3600.0), said(200)], 3, 900, "done", [30], [900, 870]),
    "asks for more than there is": ([said(429, 3600.0), said(200)], 3, 20, "failed", [], [20]),
    "may have acted": ([away(), said(500), said(200)], 3, 900, "uncertain", [0.5], [900, 899.5]),
    "no answer": ([Posted(signed_post.NO_ANSWER, "cut")], 3, 900, "uncertain", [], [900]),
    "not trusted": ([Posted(signed_post.UNTRUSTED, "who?")], 3, 900, "failed", [], [900]),
    "refused": ([said(404)], 3, 900, "refused", [], [900]),
    "sends us elsewhere": ([said(302)], 3, 900, "refused", [], [900]),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
async def test_it_is_sent_again_as_often_and_as_late(monkeypatch, case):
    """Twice as late each time, up to half a minute or what the receiver asks for, within the time of the call."""
    answers, retries, timeout, outcome, waited, left = ANSWERS[case]
    receiver = Scripted(monkeypatch, answers)
    result = await post("http://receiver.invalid/", retries=retries, timeout_seconds=timeout)
    assert (result.outcome, receiver.waited, receiver.left) == (outcome, waited, left)


@pytest.mark.parametrize("signs", [True, False])
async def test_rehearsal_says_whether_it_signs(receiver, tmp_path, signs):
    url, got = receiver
    (tmp_path / "secret").write_text("swordfish")
    asking = hook(url, secret_file=tmp_path / "secret" if signs else None)
    assert await asking.refusal(CALL) is None
    [signed, reachable, _] = await asking.rehearse(CALL)
    assert (signed.ok, signed.text) == (True, f"requests are {'' if signs else 'not '}signed")
    assert "can be reached; nothing was sent" in reachable.text
    assert got == []
