"""Every way in which a call can end is told apart, within its bounds of time and size."""

import asyncio
import gc
import gzip
import socket
import ssl
import zlib

import pytest

from tests.export.certificates import Authority
from tests.sources.wire import answering, wire
from vllm_watch.sources import http

LIMITS = http.Limits(connect_timeout_seconds=30.0, timeout_seconds=60.0, body_bytes_max=100_000)
QUICK = http.Limits(connect_timeout_seconds=0.3, timeout_seconds=0.6, body_bytes_max=100_000)
"""For who never answers; whoever does has time, however busy the machine."""


async def get(url, limits=LIMITS, headers=None):
    async with http.Session() as session:
        return await http.get(session, url, limits, headers or {})


async def ends(handler, path="/metrics", limits=LIMITS):
    """How a call ends to a server that answers with `handler`."""
    async with wire() as server:
        server.on(path, handler)
        return await get(server.url + path, limits)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def says(*pieces, and_breaks=False):
    """Sends this, and then nothing; or breaks the connection."""

    async def say(request):
        for piece in pieces:
            await request.raw(piece)
            await asyncio.sleep(0.05)
        if and_breaks:
            request.reset()
        else:
            await asyncio.sleep(5)

    return say


silence = says()
half_a_head = says(b"HTTP/1.1 200 OK\r\nContent-")
head_and_silence = says(CHUNKED)
broken_chunk = says(CHUNKED + b"3\r\nabc\r\n", b"no chunk\r\n")
reset_at_once = says(and_breaks=True)
cut_body = says(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of it", and_breaks=True)
not_http = says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", and_breaks=True)


async def drip(request):
    await request.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    for _ in range(100):
        await request.raw(b"x")
        await asyncio.sleep(0.05)


async def endless(request):
    await request.raw(CHUNKED)
    while True:
        await request.raw(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")


async def tiny_chunks(request):
    await request.raw(CHUNKED)
    while True:
        await request.raw(b"1;extension\r\na\r\n" * 1000)


GZIP = {"Content-Encoding": "gzip"}
declared_huge = answering("x", length=10**12)
bomb = answering(gzip.compress(b"x" * 50_000_000), headers=GZIP)
cut_gzip = answering(gzip.compress(b"x" * 5000)[:-12], headers=GZIP)
more_than_gzip = answering(gzip.compress(b"a 1\n") + gzip.compress(b"b 2\n"), headers=GZIP)
false_gzip = answering(b"this is not gzip", headers=GZIP)
brotli = answering(b"??", headers={"Content-Encoding": "br"})
server_error = answering("it broke", status="500 Internal Server Error")
half_an_error = answering("x", status="500 Internal Server Error", length=9)


@pytest.mark.parametrize(
    ("handler", "outcome", "status", "words"),
    [
        (silence, "read_timeout", None, "no complete answer within 0.6 s: not a byte came"),
        (half_a_head, "read_timeout", None, "within 0.6 s: its head is incomplete"),
        (head_and_silence, "read_timeout", None, "the head and 0 bytes of the body came"),
        (declared_huge, "read_timeout", None, "the head and 1 bytes of the body came"),
        (drip, "read_timeout", None, "no complete answer within 0.6 s: the head and"),
        (broken_chunk, "garbled", 200, "Invalid character in chunk size"),
        (tiny_chunks, "garbled", 200, "bytes of chunk sizes"),
        (reset_at_once, "disconnected", None, "the connection broke off"),
        (cut_body, "disconnected", None, "the connection broke off"),
        (not_http, "garbled", None, "the answer is not HTTP"),
        (endless, "too_large", 200, "longer than 100000 bytes"),
        (bomb, "too_large", 200, "longer than 100000 bytes"),
        (cut_gzip, "garbled", 200, "the gzip body ends early"),
        (more_than_gzip, "garbled", 200, "bytes follow the end"),
        (false_gzip, "garbled", 200, "cannot be unpacked"),
        (brotli, "garbled", 200, "was not asked for"),
        (server_error, "http", 500, "HTTP 500"),
        (half_an_error, "http", 500, "HTTP 500"),
    ],
    ids=lambda value: next(
        (name for name, known in list(globals().items()) if known is value), None
    ),
)
async def test_each_way_to_fail_has_its_own_outcome(handler, outcome, status, words):
    """The outcome, the status where there is one, and a sentence; and never later than the bound.

    What is left of the answer must not be read as that of the next call: the connection is closed.
    """
    limits = QUICK if outcome == "read_timeout" or handler is half_an_error else LIMITS
    async with wire(metrics=handler) as server, http.Session() as session:
        async with asyncio.timeout(60):
            call = (await http.get(session, server.url + "/metrics", limits, {})).call
            while session.connections != (handler is server_error):
                await asyncio.sleep(0.01)

    assert (call.outcome, call.status) == (outcome, status)
    assert words in call.error


async def test_nobody_listens():
    """A refused connection is not a time-out: nothing is there at all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/metrics"
    assert (await get(url)).call.outcome == "refused"


async def test_a_certificate_that_nobody_signed(tmp_path):
    """A self-signed certificate is refused, and said to be what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).own.as_strings)
    async with wire(secure=context) as server:
        call = (await get(server.url + "/metrics")).call
    assert call.outcome == "tls"
    assert "certificate" in call.error


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_packed_bodies_are_unpacked(encoding, pack):
    """What was asked for with Accept-Encoding is understood."""
    packed = answering(pack(b"metric 1\n" * 1000), headers={"Content-Encoding": encoding})
    assert (await ends(packed)).body == b"metric 1\n" * 1000


@pytest.mark.parametrize(("more", "outcome"), [(0, "ok"), (1, "too_large")])
async def test_a_body_as_long_as_the_bound_is_read(more, outcome):
    """The bound is what is allowed, to the byte."""
    body = b"x" * (LIMITS.body_bytes_max + more)
    assert (await ends(answering(body))).call.outcome == outcome


def leads(location, status="302 Found"):
    return answering(status=status, headers={"Location": location})


async def test_a_redirect_to_another_server_is_not_followed():
    """Whoever can redirect us elsewhere must not get our requests, nor our keys."""
    async with wire(metrics="stolen 1\n") as other, wire() as server:
        server.on("/metrics", leads(other.url + "/metrics"))
        answer = await get(server.url + "/metrics", headers={"Authorization": "Bearer secret"})
    assert (answer.call.outcome, answer.call.status) == ("http", 302)
    assert other.requests == []


@pytest.mark.parametrize("location", ["http://[::1", "//", "http://", "", "/" + "x" * 2048])
async def test_a_redirect_to_nowhere_is_the_answer_itself(location):
    """A Location that is no address is not followed, and raises nothing."""
    answer = await ends(leads(location))
    assert (answer.call.outcome, answer.call.status) == ("http", 302)


async def test_a_redirect_in_a_circle_ends():
    """After a few steps the redirect itself is the answer."""
    async with wire(metrics=leads("/metrics")) as server:
        answer = await get(server.url + "/metrics")
        assert len(server.requests) == 1 + http.REDIRECTS_MAX
    assert answer.call.status == 302


LEFT = {
    "one that is too large": endless,
    "one of tiny chunks": tiny_chunks,
    "one that breaks off": cut_body,
    "one that is whole": "x" * 50_000,
    "one that is packed, and no gzip": false_gzip,
}


@pytest.mark.parametrize("answer", LEFT.values(), ids=LEFT)
async def test_nothing_of_an_answer_waits_for_the_garbage_collector(answer):
    """Parts of a body in a cycle, as in an error's traceback, would be 16 MB a look until it runs."""
    async with wire() as server, http.Session() as session:
        server.on("/metrics", answer)
        await http.get(session, server.url + "/nowhere", LIMITS, {})
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await http.get(session, server.url + "/metrics", LIMITS, {})
            await asyncio.sleep(0.1)  # until the loop has let go of the connection
            gc.collect()
            held = [part for each in gc.garbage for part in gc.get_referents(each) if isinstance(part, bytes)]  # fmt: skip
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert sum(map(len, held)) < 10_000
