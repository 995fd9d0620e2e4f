"""What an attacker would send: to every endpoint that the router has, over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from tests.export.raw_http import Said, request, send
from tests.restart.station import TOKEN, Station, station
from vllm_watch.export.auth import Guarded

WRONG = "wrong-0123456789abcdef"
READING = ("GET", "HEAD")


@pytest_asyncio.fixture
async def one(tmp_path: Any) -> AsyncIterator[Station]:
    """The server with all that a daemon serves: the page, the API, people's side, the gates."""
    async with station(tmp_path) as found:
        yield found


def paths_of(one: Station, *, changing: bool) -> list[tuple[str, str]]:
    """Method and path of every route that changes something, or of every other one."""
    return [
        (route.method, _filled(route.path))
        for route in one.server.routes
        if (route.method not in READING) == changing
    ]


def _filled(path: str) -> str:
    for name, value in {"{target}": "a", "{id}": "i1", "{name}": "app.js"}.items():
        path = path.replace(name, value)
    return path.replace("{which:liveness|readiness}", "liveness")


async def ask(
    one: Station, method: str, path: str, *lines: str, body: bytes = b"", host: str = "localhost"
) -> Said:
    length = () if any("ength" in line for line in lines) else (f"Content-Length: {len(body)}",)
    closing = ("Connection: close", *length, *lines)
    return await send(one.server.port, request(method, path, *closing, body=body, host=host))


async def status_of(one: Station, method: str, path: str, *lines: str, **options: Any) -> int:
    (status,) = (await ask(one, method, path, *lines, **options)).statuses
    return status


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}"


JSON = "Content-Type: application/json"
BODY = b'{"reason": "x"}'


async def test_whatever_changes_something_is_guarded(one: Station) -> None:
    """No route beside those that only tell goes past the one place that asks for a token."""
    changing = [route for route in one.server.routes if route.method not in READING]
    assert len(changing) >= 7
    for route in changing:
        assert isinstance(getattr(route.handler, "__self__", None), Guarded), route.path


async def test_every_changing_endpoint_without_with_wrong_and_with_right_token(
    one: Station,
) -> None:
    """Refused, refused (after many of one address with 429), and taken; through a proxy on this host, too."""
    for method, path in paths_of(one, changing=True):
        proxied = "X-Forwarded-For: 203.0.113.9"
        assert await status_of(one, method, path, JSON, proxied, body=BODY) == 401, path
        bare = f"Authorization: {TOKEN}"
        assert await status_of(one, method, path, JSON, bare, body=BODY) == 401, path
        for wrong in (WRONG, TOKEN + "x", TOKEN[:-1], "\xff" * 20):
            assert await status_of(one, method, path, JSON, bearer(wrong), body=BODY) in (401, 429)
        right = await status_of(one, method, path, JSON, bearer(TOKEN), body=BODY)
        assert right not in (401, 403, 405, 415, 421, 429, 500), (path, right)
    assert [entry.action for entry in await one.entries("restart")] == ["restart"]
    assert one.reloads == [("anna", "127.0.0.1")]


FOREIGN = {
    "a page of another site": ("Origin: http://evil.example",),
    "a page without an origin": ("Origin: null",),
    "a page of another port": ("Origin: http://localhost:1",),
    "an origin that is no URL": ("Origin: http://[",),
    "a browser that says so": ("Sec-Fetch-Site: cross-site",),
    "a browser at a sibling site": ("Sec-Fetch-Site: same-site",),
}


@pytest.mark.parametrize("lines", FOREIGN.values(), ids=FOREIGN)
async def test_no_page_of_another_site_changes_anything(
    one: Station, lines: tuple[str, ...]
) -> None:
    """Not even with the right token, which it could only have stolen."""
    for method, path in paths_of(one, changing=True):
        said = await ask(one, method, path, JSON, bearer(TOKEN), *lines, body=BODY)
        assert said.statuses == [403], path
    assert one.reloads == []


FORMS = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")


@pytest.mark.parametrize("kind", FORMS)
async def test_no_form_changes_anything(one: Station, kind: str) -> None:
    """A form is what a browser sends to another site without asking first."""
    for method, path in paths_of(one, changing=True):
        lines = (f"Content-Type: {kind}", bearer(TOKEN))
        assert await status_of(one, method, path, *lines, body=BODY) == 415, path
    assert one.reloads == []


async def test_other_origins_are_allowed_nothing(one: Station) -> None:
    """No answer speaks of CORS, and a preflight is refused: a browser then sends nothing."""
    for method, path in [*paths_of(one, changing=True), *paths_of(one, changing=False)]:
        said = await ask(
            one, "OPTIONS", path, "Origin: http://evil.example",
            f"Access-Control-Request-Method: {method}", "Access-Control-Request-Headers: authorization",
        )  # fmt: skip
        assert said.statuses == [405], path
        assert b"access-control-" not in said.bytes.lower()
        assert b"set-cookie" not in said.bytes.lower()


REBOUND = ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "169.254.169.254", "")


@pytest.mark.parametrize("host", REBOUND)
async def test_no_endpoint_answers_to_another_name(one: Station, host: str) -> None:
    """On loopback: a page whose name was pointed at us reads nothing and changes nothing."""
    for method, path in [*paths_of(one, changing=True), *paths_of(one, changing=False)]:
        lines = (JSON, bearer(TOKEN))
        assert await status_of(one, method, path, *lines, body=b"", host=host) == 421, path


async def test_each_change_is_written_down_and_no_token_is(one: Station) -> None:
    """Who, from where, what and what came of it; a wrong token is told of by its address alone."""
    with capture_logs() as told:
        for method, path in paths_of(one, changing=True):
            await ask(one, method, path, JSON, bearer(TOKEN), body=BODY)
            await ask(one, method, path, JSON, bearer(WRONG), body=BODY)
    changes = [each for each in told if each["event"] == "change_asked"]
    assert [each["path"] for each in changes] == [path for _, path in paths_of(one, changing=True)]
    assert {(each["actor"], each["source"]) for each in changes} == {("anna", "127.0.0.1")}
    assert all(isinstance(each["status"], int) for each in changes)
    wrong = [each for each in told if each["event"] == "wrong_token"]
    assert {each["caller"] for each in wrong} == {"127.0.0.1"}
    assert TOKEN not in str(told)
    assert WRONG not in str(told)


# --- bodies

DEEP = b"[" * 4000
BODIES = {
    "no JSON": b"\x00\xff\xfe{",
    "a list": b"[1]",
    "a number": b"1e999",
    "deep": DEEP,
    "keys twice": b'{"reason": "a", "reason": "b", "reason": 3}',
    "a lone surrogate": b'{"reason": "\\ud800"}',
    "a huge number": b'{"reason": "x", "minutes": 1' + b"0" * 3000 + b"}",
    "not a number": b'{"reason": "x", "minutes": NaN}',
    "a prototype": b'{"__proto__": {"reason": "x"}}',
    "control characters": b'{"reason": "\\u0000\\u001b[2J\\r\\nSet-Cookie: a=b"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_malformed_bodies_to_every_endpoint(one: Station, body: bytes) -> None:
    """Each is answered, none with a 500, and the server goes on."""
    for method, path in [*paths_of(one, changing=True), *paths_of(one, changing=False)]:
        if path == "/api/v1/events":
            continue  # streams for ever; it takes no body
        (status,) = (await ask(one, method, path, JSON, bearer(TOKEN), body=body)).statuses
        assert status < 500, (path, status)
    assert await status_of(one, "GET", "/-/healthy") == 200


async def test_oversized_bodies_to_every_endpoint(one: Station) -> None:
    """Refused before they are taken in: by size where it is said, while they come where it is not."""
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    lines = (JSON, bearer(TOKEN), "Connection: close")

    async def oversize(method: str, path: str) -> None:
        said = await ask(one, method, path, *lines, body=b"x" * 100_000)
        assert said.statuses == [413], path
        head = request(method, path, *lines, "Transfer-Encoding: chunked")
        said = await send(one.server.port, head, *[chunk] * 8, quiet_s=8.0)
        assert said.statuses == [413], path

    every = [*paths_of(one, changing=True), *paths_of(one, changing=False)]
    # Alertmanager's may have 1 MiB, see below.
    large = [each for each in every if each[1] != "/api/v1/alertmanager"]
    await asyncio.gather(*(oversize(method, path) for method, path in large))
    assert await status_of(one, "GET", "/-/healthy") == 200


GARBAGE = {
    "no size": b"zz\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-5\r\nabc\r\n0\r\n\r\n",
    "a huge size": b"ffffffffffffffffff\r\nabc\r\n",
    "a size that lies": b"2\r\nabcdef\r\n0\r\n\r\n",
    "a long extension": b"1;" + b"x" * 20_000 + b"\r\na\r\n0\r\n\r\n",
    "a long trailer": b"0\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
async def test_chunked_garbage_to_every_endpoint(one: Station, body: bytes) -> None:
    """Refused or cut off; never a 500, never a hang, and never taken for a request."""
    for method, path in [*paths_of(one, changing=True), *paths_of(one, changing=False)]:
        if path == "/api/v1/events":
            continue
        head = request(method, path, JSON, bearer(TOKEN), "Transfer-Encoding: chunked", "Connection: close")  # fmt: skip
        said = await send(one.server.port, head + body, quiet_s=8.0)
        assert len(said.statuses) <= 1, (path, said.statuses)
        assert all(status < 500 for status in said.statuses), (path, said.statuses)
    assert await status_of(one, "GET", "/-/healthy") == 200
    assert one.reloads == [] or all(actor == "anna" for actor, _ in one.reloads)


async def test_callers_that_go_away_leave_nothing_in_the_log(
    one: Station, caplog: pytest.LogCaptureFixture
) -> None:
    """In the middle of a head, of a body or of an answer: whoever does so a million times fills no disk."""
    for method, path in [*paths_of(one, changing=True), *paths_of(one, changing=False)]:
        head = request(method, path, JSON, bearer(TOKEN), "Content-Length: 50")
        for sent in (head[:30], head, head + b"{", head[:-2]):
            await send(one.server.port, sent, quiet_s=0.02)
    await asyncio.sleep(0.1)
    assert await status_of(one, "GET", "/-/healthy") == 200
    assert [each.getMessage() for each in caplog.records if each.name == "vllm_watch.export"] == []


# --- request smuggling: two readers of one stream must not disagree on where a request ends

HIDDEN = request("POST", "/-/reload", "Content-Length: 0")
SMUGGLED = {
    "length and chunks": (
        b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 9.9.9.9\r\nContent-Length: %d\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(HIDDEN)) + HIDDEN),
    "two lengths": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: %d\r\n\r\n"
        % len(HIDDEN) + HIDDEN),
    "a length with a sign": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Length: +0\r\n\r\n" + HIDDEN),
    "an unknown coding": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n" + HIDDEN),
    "chunked, but not last": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, identity\r\n\r\n" + HIDDEN),
    "a space before the colon": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent-Length : %d\r\n\r\n" % len(HIDDEN) + HIDDEN),
    "a folded line": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n" + HIDDEN),
    "a NUL in a name": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nContent\0-Length: 9\r\n\r\n" + HIDDEN),
    "a bare CR": (
        b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nX: a\rContent-Length: 9\r\n\r\n" + HIDDEN),
}  # fmt: skip


@pytest.mark.parametrize("sent", SMUGGLED.values(), ids=SMUGGLED)
async def test_ambiguous_requests_are_refused(one: Station, sent: bytes) -> None:
    """With 400 and the end of the connection; what is hidden behind is no request."""
    said = await send(one.server.port, sent)
    assert said.statuses in ([400], []), said.statuses
    assert said.closed
    assert one.reloads == []


async def test_two_hosts_are_not_one(one: Station) -> None:
    sent = request("GET", "/metrics", "Host: evil.example", "Connection: close")
    assert (await send(one.server.port, sent)).statuses in ([400], [421])
    absolute = (
        b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert (await send(one.server.port, absolute)).statuses in ([400], [404], [421])


async def test_answers_cannot_be_split(one: Station) -> None:
    said = await ask(one, "GET", "/api/v1/recording?target=a%0d%0aSet-Cookie:%20a=b")
    assert said.statuses == [404]
    head, _, body = said.bytes.partition(b"\r\n\r\n")
    assert b"set-cookie" not in head.lower()
    assert "Set-Cookie: a=b" in json.loads(body)["error"]
