"""What is an answer in HTTP/1.x and what only looks like one, however its bytes arrive."""

import gzip
import http.client
import io
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from vllm_watch.sources import http_messages
from vllm_watch.sources.http_messages import ResponseReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
THREE = b"Content-Length: 3\r\n\r\nabc"


@dataclass(frozen=True)
class Read:
    """What was read; of an answer that is no HTTP, nothing."""

    status: int = 0
    body: bytes = b""
    whole: bool = False
    keeps: bool = False  # may the connection be used again?
    extra: bool = False  # did more come than the answer?


NOT_HTTP = None


BODY_BYTES_MAX = 1000


def read(pieces, *, end=False):
    """Feed the pieces; then the connection is closed, or stays open and silent."""
    reading = ResponseReader()
    reading.expect(BODY_BYTES_MAX, BODY_BYTES_MAX)
    for piece in pieces:
        reading.feed(piece)
    if end:
        reading.end()
    if reading.error is not None:
        assert reading.error[0] == "garbled"
        return NOT_HTTP
    return Read(
        reading.status, reading.body(), reading.complete, reading.keep_alive, reading.trailing_data
    )


def an(body, status=200, *, keeps=True, extra=False):
    return Read(status, body, whole=True, keeps=keeps, extra=extra)


def half(body, status=200, *, keeps=True):
    return Read(status, body, keeps=keeps)


ANSWERS = {
    "a length": (OK + THREE, an(b"abc")),
    "a length of nothing": (OK + b"Content-Length: 0\r\n\r\n", an(b"")),
    "a length in any case": (OK + b"cOnTeNt-LeNgTh:\t3 \r\n\r\nabc", an(b"abc")),
    "fewer than its length": (OK + b"Content-Length: 30\r\n\r\nabc", half(b"abc")),
    "more than its length": (OK + THREE + b"HTTP/1.1 200 OK", an(b"abc", extra=True)),
    "no length": (OK + b"\r\nabc", half(b"abc", keeps=False)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n" + THREE, an(b"abc", keeps=False)),
    "HTTP/1.0 that stays": (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n" + THREE, an(b"abc")),
    "HTTP/1.0 in chunks": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + CHUNKED[17:] + b"0\r\n\r\n", an(b"")),
    "it closes": (OK + b"Connection: close\r\n" + THREE, an(b"abc", keeps=False)),
    "it closes, among others": (OK + b"Connection: x , Close\r\n" + THREE, an(b"abc", keeps=False)),
    "it closes, said apart": (OK + b"Connection: x\r\nConnection: close\r\n" + THREE, an(b"abc", keeps=False)),
    "no reason": (b"HTTP/1.1 200\r\n" + THREE, an(b"abc")),
    "chunks": (CHUNKED + b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", an(b"abc")),
    "chunks in capitals and zeros": (CHUNKED + b"000A\r\n0123456789\r\n00\r\n\r\n", an(b"0123456789")),
    "chunks with extensions": (CHUNKED + b'3;a="b;c"\r\nabc\r\n0;x\r\n\r\n', an(b"abc")),
    "chunks and trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nExpires: x\r\nA:\r\n\r\n", an(b"abc")),
    "chunks and more": (CHUNKED + b"0\r\n\r\nH", an(b"", extra=True)),
    "chunks and an empty line, which is nothing": (CHUNKED + b"0\r\n\r\n\r\n", an(b"")),
    "an empty line before it, which is nothing": (b"\r\n" + OK + THREE, an(b"abc")),
    "a chunk of any size": (CHUNKED + b"f" * 16 + b"\r\nabc", half(b"abc")),
    "chunks without the last": (CHUNKED + b"3\r\nabc\r\n", half(b"abc")),
    "chunks without the end of the last": (CHUNKED + b"3\r\nabc\r\n0\r\n", half(b"abc")),
    "a head that has not ended": (b"HTTP/1.1 200 OK\r\nContent-Le", Read()),
    "100 before it": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + THREE, an(b"abc")),
    "100 and no more": (b"HTTP/1.1 100 Continue\r\n\r\n", Read()),
    "another protocol": (b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x00\x01", an(b"", 101, keeps=False, extra=True)),
    "204 has no body": (b"HTTP/1.1 204 No Content\r\n\r\n", an(b"", 204)),
    "304 has none either, whatever it says": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", an(b"", 304)),
    "an error": (b"HTTP/1.1 503 Service Unavailable\r\n" + THREE, an(b"abc", 503)),
}  # fmt: skip

GARBAGE = {
    "a page": b"<html>500</html>",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a line before it": b"x\r\n" + OK + THREE,
    "HTTP/2": b"HTTP/2.0 200 OK\r\n" + THREE,
    "a status of two figures": b"HTTP/1.1 20 OK\r\n" + THREE,
    "a status in other figures": "HTTP/1.1 ²٣٠ OK\r\n".encode() + THREE,
    "two spaces": b"HTTP/1.1  200 OK\r\n" + THREE,
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
    "one bare line feed": OK + b"A: b\nContent-Length: 3\r\n\r\nabc",
    "NUL": OK + b"A: \0\r\n" + THREE,
    "a folded header": OK + b"A: b\r\n c\r\n" + THREE,
    "a space before the colon": OK + b"Content-Length : 3\r\n\r\nabc",
    "no colon": OK + b"Content-Length 3\r\n\r\nabc",
    "two lengths": OK + b"Content-Length: 4\r\n" + THREE,
    "one length twice": OK + b"Content-Length: 3\r\n" + THREE,
    "a length below nothing": OK + b"Content-Length: -3\r\n\r\nabc",
    "a length with a sign": OK + b"Content-Length: +3\r\n\r\nabc",
    "a length in other figures": OK + "Content-Length: ٣\r\n\r\nabc".encode(),
    "a length beyond all": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc",
    "a length and chunks": OK + b"Content-Length: 3\r\n" + CHUNKED[17:] + b"3\r\nabc\r\n0\r\n\r\n",
    "chunks and a length": OK + b"Transfer-Encoding: chunked\r\n" + THREE,
    "chunked twice": OK + b"Transfer-Encoding: chunked\r\n" + CHUNKED[17:] + b"0\r\n\r\n",
    "packed on its way": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "as it is": OK + b"Transfer-Encoding: identity\r\n\r\nabc",
    "a size that is not a number": CHUNKED + b"zz\r\n",
    "a size as Python writes it": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a size and a space": CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
    "no size": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "a size beyond all": CHUNKED + b"1" + b"0" * 16 + b"\r\nabc",
    "a space before an extension": CHUNKED + b"3 ;x\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it said": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a bare line feed after a size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "a bare line feed after a chunk": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "a bare line feed after a trailer": CHUNKED + b"0\r\nA: b\n\r\n",
    "a bare carriage return in an extension": CHUNKED + b"3;\r \r\nabc\r\n0\r\n\r\n",
    "a trailer that is none": CHUNKED + b"0\r\nno trailer\r\n\r\n",
    "100 that does not end": b"HTTP/1.1 100 Continue\r\n\r\n" * 17,
    "too many headers": OK + b"A: b\r\n" * 128 + THREE,
    "too many trailers": CHUNKED + b"0\r\n" + b"A: b\r\n" * 129,
    "a head without end": OK + b"A: " + b"x" * http_messages.HEAD_BYTES_MAX,
    "a head that is long and ends": OK + b"A: " + b"x" * http_messages.HEAD_BYTES_MAX + b"\r\n" + THREE,
    "nothing but trailers": CHUNKED + b"0\r\n" + b"A: " + b"x" * http_messages.FRAMING_BYTES_MAX,
    "an extension without end": CHUNKED + b"3;" + b"x" * http_messages.FRAMING_BYTES_MAX,
}  # fmt: skip

STORIES = {**ANSWERS, **{f"no HTTP: {name}": (data, NOT_HTTP) for name, data in GARBAGE.items()}}


@pytest.mark.parametrize(("data", "expected"), STORIES.values(), ids=STORIES)
def test_how_an_answer_is_cut_makes_no_difference(data, expected):
    """In one piece, in every two, and byte by byte where it is not long."""
    assert read([data]) == expected
    cuts = range(1, min(len(data), 200))
    assert {read([data[:cut], data[cut:]]) for cut in cuts} == {expected}
    if len(data) <= 6000:
        assert read([data[at : at + 1] for at in range(len(data))]) == expected


def reader(body_bytes_max=BODY_BYTES_MAX):
    """One that expects an answer."""
    made = ResponseReader()
    made.expect(body_bytes_max)
    return made


def test_chunks_that_are_mostly_framing_are_refused():
    """A body of a byte a chunk: a little of it is read, and not as much as the sender likes."""
    reading, chunk = reader(1 << 24), b"1\r\na\r\n"
    reading.feed(CHUNKED + chunk)
    assert reading.body() == b"a"
    for _ in range(1 + http_messages.FRAMING_BYTES_MAX // len(chunk[1:]) // 1000):
        reading.feed(chunk * 1000)
    assert reading.error == ("garbled", "the answer is not HTTP: over 262144 bytes of chunk sizes and trailers")  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_that_is_too_large_is_let_go_at_once(packed):
    """With the byte that is too much nothing of it is held, and nothing of what still comes."""
    coding, body = (b"Content-Encoding: gzip\r\n", gzip.compress(b"x" * 5000)) if packed else (b"", b"x" * 5000)  # fmt: skip
    reading = reader()
    reading.feed(OK + coding + b"\r\n")
    for at in range(len(body)):
        reading.feed(body[at : at + 1])
    assert reading.error == ("too_large", "the body is longer than it may be")
    assert (reading.ended, reading.body()) == (True, b"")


def test_headers_are_kept_by_name():
    """In lower case, without the space around a value; several of a name are one, in their order."""
    reading = reader()
    reading.feed(b"HTTP/1.1 200 OK\r\nX-A:  1 \r\nx-a: 2\r\nE:\r\nCONTENT-TYPE: text/plain\r\n" + THREE)  # fmt: skip
    assert reading.headers == {"x-a": "1, 2", "e": "", "content-type": "text/plain", "content-length": "3"}  # fmt: skip


class Wire(io.BytesIO):
    """What http.client takes for a socket."""

    def makefile(self, mode):
        return self


@st.composite
def answers(draw):
    """A well-formed answer, whether its end is that of the connection, and how it comes in pieces."""
    status = draw(st.sampled_from((200, 201, 204, 304, 404, 500, 503)))
    name = st.from_regex(r"X-[A-Za-z0-9!#$%&'*+.^_`|~-]{0,9}", fullmatch=True)
    value = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
    fields = draw(st.dictionaries(name.map(str.lower), value, max_size=5))
    lines = [f"{key}: {said}\r\n".encode() for key, said in fields.items()]
    body = b"" if status in (204, 304) else draw(st.binary(max_size=60))
    how = draw(st.sampled_from(("length", "chunks", "close")))
    head = b"HTTP/1.1 100 Continue\r\n\r\n" * draw(st.integers(0, 2))
    head += f"HTTP/1.1 {status} {draw(value)}\r\n".encode() + b"".join(lines)
    if status in (204, 304):
        data = head + b"\r\n"
    elif how == "length":
        data = head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    elif how == "close":
        data = head + b"\r\n" + body
    else:
        data = head + b"Transfer-Encoding: chunked\r\n\r\n" + draw(in_chunks(body))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return data, [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@st.composite
def in_chunks(draw, body):
    cuts = sorted(set(draw(st.lists(st.integers(1, max(1, len(body))), max_size=5))))
    out = b""
    for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        if piece := body[begin:end]:
            extension = draw(st.sampled_from((b"", b";a=b", b';a="b"')))
            out += b"%x" % len(piece) + extension + b"\r\n" + piece + b"\r\n"
    return out + b"0\r\n" + draw(st.sampled_from((b"", b"A: b\r\n"))) + b"\r\n"


@examples(300)
@given(answers())
def test_what_is_well_formed_is_read_as_others_read_it(answer):
    """Status, headers and body as Python's own client has them, however it is cut."""
    data, pieces = answer
    theirs = http.client.HTTPResponse(Wire(data), method="GET")
    theirs.begin()
    headers = {key.lower(): value for key, value in theirs.getheaders()}
    reading = ResponseReader()
    reading.expect(BODY_BYTES_MAX, BODY_BYTES_MAX)
    for piece in filter(None, pieces):
        reading.feed(piece)

    assert reading.end()
    assert (reading.status, reading.headers, reading.body()) == (theirs.status, headers, theirs.read())  # fmt: skip
    assert not reading.trailing_data


@examples(500)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([CHUNKED, OK, THREE, b"\r\n", b"0\r\n", b"3\r\nabc\r\n"]), max_size=8))  # fmt: skip
def test_any_bytes_are_an_answer_or_refused(pieces):
    """The same whether they come at once or in pieces, and nothing else is raised."""
    whole = b"".join(pieces)
    assert read([whole] if whole else []) == read([piece for piece in pieces if piece])
