"""What is kept of a connection, and what is never: over real sockets, with servers that do as they like."""

import asyncio
import gc
import os
import socket
import ssl
from contextlib import asynccontextmanager

import pytest

from tests.export.certificates import Authority
from tests.sources.wire import black_hole, wire
from vllm_watch.sources import http, http_caches
from vllm_watch.sources.http import Session
from vllm_watch.sources.http_caches import Names
from vllm_watch.sources.http_connection import Connection, Wanted

LIMITS = http.Limits(10.0, 20.0, 100_000)
PATIENCE_SECONDS = 60.0  # of a machine that is busy


@asynccontextmanager
async def peer(*answers, secure=None):
    """Answers the first request with the first of `answers`, and so on; the last as often as it takes.

    An answer is bytes, or None where the connection is closed in its place (or after them); "…" is none, and waits.
    """
    left = list(answers)

    async def act(request):
        answer = left.pop(0) if len(left) > 1 else left[0]
        for part in answer if isinstance(answer, tuple) else (answer,):
            if part is None:
                raise ConnectionError
            if part != "…":
                await request.raw(part)

    async with wire(secure=secure, metrics=act) as server:
        server.url += "/metrics"
        yield server


def asked_on(server):
    """The number of the connection that each request came on."""
    return [request.connection for request in server.requests]


def an(body, *headers, status=b"200 OK", also=b""):
    lines = b"".join(line + b"\r\n" for line in headers)
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b%b" % (status, lines, len(body), body, also)  # fmt: skip


X = an(b"x 1\n")


async def get(session, url, limits=LIMITS):
    return await http.get(session, url, limits, {})


async def test_a_connection_that_is_too_old_to_be_kept_is_closed(monkeypatch):
    """A server or a proxy may keep idle connections for an hour: each that is dropped must be closed by us."""
    monkeypatch.setattr(http, "KEPT_SECONDS", 0.0)
    async with peer(X) as server, http.Session() as session:
        for _ in range(5):
            assert (await get(session, server.url)).call.outcome == "ok"
        await until(lambda: session.connections == 0)
        assert asked_on(server) == [1, 2, 3, 4, 5]


async def ends(event):
    """Wait until a connection has ended."""
    await asyncio.wait_for(event.wait(), PATIENCE_SECONDS)


async def until(true):
    """Wait for what is bound to come."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(0.01)


new = http.Session


async def test_a_hundred_calls_are_one_connection():
    """Also such as bring an error, where all of it is there at once."""
    async with peer(X, an(b"no", status=b"404 Not Found"), X) as server, new() as session:
        statuses = {(await get(session, server.url)).call.status for _ in range(100)}
        assert statuses == {200, 404}
        assert {*asked_on(server)} == {1}


@pytest.mark.parametrize("says", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nstolen 1\n"])
async def test_a_connection_that_stirs_while_it_is_idle_is_not_used(says):
    """It was closed, or brought bytes that would be read as the beginning of the next answer."""
    idle_long = asyncio.Event()

    async def stir(request):
        await request.answer("x 1\n")
        await idle_long.wait()
        if says is None:
            raise ConnectionError
        await request.raw(says)

    async with wire(metrics=stir) as server, new() as session:
        await get(session, server.url + "/metrics")
        idle_long.set()
        await until(lambda: session.connections == 0)
        assert (await get(session, server.url + "/metrics")).body == b"x 1\n"
        assert asked_on(server) == [1, 2]


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx"
CLOSING = {  # answers, of which the first is to a GET; the next method; how that ends, and who was asked on which connection
    "a GET is asked once more: the server may not have seen it": ((X, None, X), "GET", "ok", [1, 1, 2]),
    "and twice at most": ((X, None), "GET", "disconnected", [1, 1, 2]),
    "nor again once its answer was begun": ((X, (BEGUN, None)), "GET", "disconnected", [1, 1]),
    "a POST, which cannot be sent again, has a connection of its own": ((X, None), "POST", "disconnected", [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "method", "outcome", "on"), CLOSING.values(), ids=CLOSING)
async def test_a_connection_that_is_closed_as_it_is_used(answers, method, outcome, on):
    async with peer(*answers) as server, new() as session:
        await get(session, server.url)
        if method == "GET":
            answer = await get(session, server.url)
        else:
            answer = await http.post(session, server.url, LIMITS, {}, b"{}")
        assert answer.call.outcome == outcome
        assert asked_on(server) == on


UNTRUSTED = {
    "it says that it closes": an(b"x 1\n", b"Connection: close"),
    "HTTP/1.0": X.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "another answer follows, which nobody asked for": an(b"x 1\n", also=an(b"stolen 1\n")),
    "a byte follows": an(b"x 1\n", also=b"H"),
}


@pytest.mark.parametrize("answer", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_a_connection_that_cannot_be_trusted_is_closed(answer):
    """The answer itself is good; what comes after it would be taken for the next."""
    async with peer(answer, X) as server, new() as session:
        assert (await get(session, server.url)).body == b"x 1\n"
        await ends(server.ended[0])
        assert (await get(session, server.url)).body == b"x 1\n"
        assert asked_on(server) == [1, 2]


async def test_who_speaks_before_it_is_asked_is_heard():
    """As a proxy that refuses a connection does, and a server of another protocol."""
    for says, outcome in ((an(b"", status=b"503 Busy"), "http"), (b"SSH-2.0-x\r\n", "garbled")):

        async def speak(reader, writer, says=says):
            writer.write(says)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        async with server, new() as session:
            port = server.sockets[0].getsockname()[1]
            assert (await get(session, f"http://127.0.0.1:{port}/")).call.outcome == outcome


async def test_calls_at_a_time_are_connections():
    """One question at a time on each; afterwards one of them is enough."""
    both = asyncio.Barrier(2)

    async def together(request):
        if len(server.requests) <= 2:
            await both.wait()
        await request.answer(f"x {request.connection}\n")

    async with wire(metrics=together) as server, new() as session:
        url = server.url + "/metrics"
        answers = await asyncio.gather(get(session, url), get(session, url))
        assert {answer.body for answer in answers} == {b"x 1\n", b"x 2\n"}
        for _ in range(5):
            await get(session, url)
        assert server.connections == 2
        assert len({request.connection for request in server.requests[2:]}) == 1


async def test_a_session_that_is_closed_ends_everything():
    """What is idle, and what is under way, which is told so."""
    async with peer(X, "…") as server:
        session = new()
        await get(session, server.url)
        call = asyncio.create_task(http.post(session, server.url, LIMITS, {}, b"{}"))
        await until(lambda: len(server.requests) == 2)
        await session.close()
        assert (await call).call.outcome == "disconnected"
        for ended in server.ended:
            await ends(ended)
        with pytest.raises(RuntimeError, match="closed"):
            await get(session, server.url)


@asynccontextmanager
async def pair():
    """A connection of ours, what to ask on it, and the socket at its other end."""
    loop, (ours, theirs) = asyncio.get_running_loop(), socket.socketpair()
    lost = asyncio.Event()
    _, connection = await loop.create_connection(
        lambda: Connection(memoryview(bytearray(1000)), lambda _: lost.set()), sock=ours
    )
    wanted = Wanted(loop.time() + PATIENCE_SECONDS, PATIENCE_SECONDS, 1000)
    try:
        yield connection, wanted, theirs
    finally:
        theirs.close()
        connection.abort()
        await ends(lost)


async def test_who_was_gone_before_we_asked_has_not_answered():
    """Said at once, and not when the time for an answer is over."""
    async with pair() as (connection, wanted, theirs):
        theirs.close()
        assert (await connection.exchange(b"?", wanted)).outcome == "disconnected"
        assert (await connection.exchange(b"?", wanted)).outcome == "disconnected"


async def test_a_connection_that_is_idle_does_not_hold_the_last_body():
    """There are as many idle connections as targets, and a body is 50 kB."""
    async with pair() as (connection, wanted, theirs):
        call = asyncio.create_task(connection.exchange(b"?", wanted))
        await asyncio.sleep(0)  # it has asked
        theirs.sendall(an(b"x" * 500))
        response = await call
        assert connection.reusable
        assert all(each is response for each in gc.get_referrers(response.body))


async def test_a_call_that_is_cancelled_as_its_answer_comes_closes_its_connection():
    """Nobody is left to put it among those that are idle."""
    async with pair() as (connection, wanted, _):
        call = asyncio.create_task(connection.exchange(b"?", wanted))
        await asyncio.sleep(0)  # it has asked
        connection.get_buffer(-1)[: len(X)] = X
        connection.buffer_updated(len(X))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (connection.reusable, connection.is_open) == (False, False)


async def test_a_body_that_ends_because_we_close_is_not_whole():
    """The end of the connection is the end of such a body, where it is the server that ends it."""
    async with pair() as (connection, wanted, theirs):
        call = asyncio.create_task(connection.exchange(b"?", wanted))
        await asyncio.sleep(0)  # it has asked
        theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await until(lambda: connection.begun)
        connection.abort()
        assert (await call).outcome == "disconnected"


async def test_a_connection_that_is_not_used_any_more_is_closed(monkeypatch):
    """That of a target that was taken away."""
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.1)
    async with peer(X) as server, new() as session:
        await get(session, server.url)
        await ends(server.ended[0])
        await until(lambda: session.connections == 0)


async def test_a_connection_that_is_used_again_stays_as_long_again():
    """One timer serves all its stays, and ends none that is in use."""
    async with pair() as (connection, wanted, theirs):
        connection.keep_idle(0.1)
        connection.keep_idle()
        call = asyncio.create_task(connection.exchange(b"?", wanted))
        await asyncio.sleep(0.2)
        assert connection.is_open
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert (await call).outcome == "ok"
        connection.keep_idle(0.1)
        await until(lambda: not connection.is_open)


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """Whom this host trusts."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.own.certificate))
    return authority


def secured(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.signs("server").as_strings)
    return context


async def test_a_connection_over_tls_is_used_again(authority):
    """Whose certificate is signed by whom this host trusts, and is for whom was asked."""
    async with peer(X, secure=secured(authority)) as server, new() as session:
        outcomes = {(await get(session, server.url)).call.outcome for _ in range(20)}
        named = await get(session, server.url.replace("127.0.0.1", "LOCALHOST"))
        assert outcomes == {named.call.outcome} == {"ok"}
        assert {*asked_on(server)} == {1, 2}


async def test_whom_this_host_trusts_is_read_anew_after_a_refusal(authority, tmp_path, monkeypatch):
    """An authority that was added counts without a restart; and it may not have been readable before."""
    monkeypatch.setattr(http_caches, "REFUSED_SECONDS", 0.0)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    async with peer(X, secure=secured(other)) as server, new() as session:
        assert (await get(session, server.url)).call.outcome == "tls"
        authority.own.certificate.write_text(other.own.certificate.read_text())
        assert (await get(session, server.url)).call.outcome == "ok"


async def test_a_handshake_that_does_not_end_is_given_up():
    """Whoever takes a connection and says nothing has not been reached, over TLS."""
    limits = http.Limits(1.0, 20.0, 100)
    async with peer("…") as server, new() as session:
        call = (await get(session, server.url.replace("http:", "https:"), limits)).call
        await until(lambda: server.ended)  # as above
        await ends(server.ended[0])
    assert (call.outcome, call.error) == ("connect_timeout", "no connection within 1 s")


async def test_the_server_is_not_blamed_for_certificates_that_we_cannot_read(
    authority, tmp_path, monkeypatch
):
    """Whom this host trusts comes from a disk that does not answer: here a pipe that nobody writes to."""
    context, store = secured(authority), tmp_path / "store.pem"
    os.mkfifo(store)
    monkeypatch.setenv("SSL_CERT_FILE", str(store))
    limits = http.Limits(0.2, 0.5, 100)
    async with peer(X, secure=context) as server, new() as session:
        try:
            call = (await get(session, server.url, limits)).call
        finally:
            store.write_bytes(authority.own.certificate.read_bytes())
        assert (call.outcome, server.requests) == ("watcher", [])
        assert (
            "could not read its CA certificates or its own within 0.5 s (check the disk"
            in call.error
        )
        assert (await get(session, server.url)).call.outcome == "ok"


def names(*addresses):
    """A name that has these addresses."""

    async def resolve(host, port):
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (each, port)) for each in addresses]

    return Names(resolve)


async def test_the_next_address_is_tried_where_one_does_not_answer():
    """Beside it and soon: one that refuses, and one whose listener is full, before the one that answers."""
    async with peer(X) as server:
        port = int(server.url.split(":")[2].partition("/")[0])
        with black_hole(port, "127.0.0.3"):
            async with Session(names("127.0.0.2", "127.0.0.3", "127.0.0.1")) as session:
                answer = await get(session, f"http://engine:{port}/metrics")
    assert answer.call.outcome == "ok"
