"""An HTTP/1.x answer, read as it arrives, in any pieces: its head, its body unpacked, and where it ends. No I/O.

llhttp (through httptools) finds head, chunks and end, strictly: folded headers, bare line feeds and two lengths are
no answer. It reads without end and tells nobody how much; so what it reads and how much is kept is bounded here.
Source: RFC 9112 (messages, framing, chunks), RFC 9110 (fields, status codes).
"""

import zlib

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

HEAD_BYTES_MAX = 64 << 10
"""Of the heads of one answer: servers send hundreds of bytes, and proxies with long policies some thousands."""

HEADERS_MAX = 128  # trailers with them
INFORMATIONAL_MAX = 16
"""Heads of status 1xx before the answer; one is usual (103), and an endless row of them is no answer."""

FRAMING_BYTES_MAX = 256 << 10
"""Of all that is not body: chunk sizes, extensions, trailers. A body in chunks of a byte each would cost us much
more than its sender: 40 bytes of memory for each of its bytes."""

OK = 200
_SWITCHING = 101


class ResponseReader:
    """Reads one answer after another; `expect` comes before each. `status` is 0 until the head is there."""

    __slots__ = (
        "_framing_left", "_head_left", "_headers_left", "_informational_left", "_parser", "_parts", "_room", "_unpack",
        "body_bytes", "extra", "headers", "keeps", "refusal_bytes_max", "status", "whole", "wrong",
    )  # fmt: skip

    def __init__(self) -> None:
        # Each knows the other: until `close` only the garbage collector would find them.
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.expect(0)

    def expect(self, body_bytes_max: int, refusal_bytes_max: int = 0) -> None:
        """Forget what was read; the next answer may be so long, its body where the status is not 200 so long."""
        self.status = 0
        self.headers: dict[str, str] = {}  # by names in lower case; several of a name are joined
        self.body_bytes = 0  # that have come, packed
        self.whole = False
        self.extra = False  # did more come than the answer?
        self.keeps = False  # may the connection be used again once the answer is whole?
        self.wrong: tuple[str, str] | None = None  # outcome and words: it cannot be read on
        self.refusal_bytes_max = refusal_bytes_max
        self._room = body_bytes_max
        self._parts: list[bytes] = []
        self._unpack: zlib._Decompress | None = None
        self._head_left = HEAD_BYTES_MAX
        self._headers_left = HEADERS_MAX
        self._informational_left = INFORMATIONAL_MAX
        self._framing_left = FRAMING_BYTES_MAX

    def close(self) -> None:
        """Read nothing more."""
        self._parser = None

    @property
    def ended(self) -> bool:
        """Is all here that was asked for, or can it not come any more?"""
        if self.wrong is not None or self.whole:
            return True
        return self.status not in (0, OK) and self._room <= 0

    def feed(self, data: bytes | memoryview) -> None:
        """Take what arrived. Raises MemoryError."""
        if self._parser is None or self.wrong is not None:
            return
        before = self.body_bytes
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # another protocol follows, which nobody asked for
            self.whole = self.extra = True
        except HttpParserCallbackError as error:
            raise (error.__context__ or error) from None
        except HttpParserError as error:
            if self.whole:
                self.extra = True
            else:
                self._refuse(str(error))
        self._framing_left -= len(data) - (self.body_bytes - before)
        if self._framing_left < 0:
            self._refuse(f"over {FRAMING_BYTES_MAX} bytes of chunk sizes and trailers")
        elif not self.status and FRAMING_BYTES_MAX - self._framing_left > HEAD_BYTES_MAX:
            self._refuse(f"its head is longer than {HEAD_BYTES_MAX} bytes")

    def end(self) -> bool:
        """The connection was closed properly: is the answer whole?"""
        known = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.status and not known:
            self.on_message_complete()
        return self.whole

    def body(self) -> bytes:
        """Return what came of it, unpacked."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    # --- what llhttp calls

    def on_message_begin(self) -> None:
        self.extra = self.extra or self.whole

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_left -= 1
        self._head_left -= len(name) + len(value)
        if self._headers_left < 0:
            self._refuse(f"more than {HEADERS_MAX} headers")
        elif self._head_left < 0:
            self._refuse(f"its head is longer than {HEAD_BYTES_MAX} bytes")
        elif not self.status:  # otherwise it is a trailer, of which we know none
            key, said = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
            # Of two lengths, or two codings, come words that are no length and no coding.
            self.headers[key] = f"{self.headers[key]}, {said}" if key in self.headers else said

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None or self.extra or self.wrong is not None:
            return
        status, version = parser.get_status_code(), parser.get_http_version()
        if not version.startswith("1.") or status < 100:  # noqa: PLR2004 - RFC 9110, 15
            self._refuse(f"HTTP/{version} with status {status}")
        elif status < OK and status != _SWITCHING:
            self._informational_left -= 1
            self.headers = {}
            if not self._informational_left:
                self._refuse(f"over {INFORMATIONAL_MAX} informational answers")
        else:
            self.status = status
            self._frame(parser)

    def on_body(self, piece: bytes) -> None:
        self.body_bytes += len(piece)
        if self.wrong is not None or self.extra:
            return
        if self.status != OK:
            piece = piece[: max(0, self._room)]
        elif self._unpack is not None:
            try:
                piece = self._unpack.decompress(piece, self._room + 1)
            except zlib.error as error:
                self._give_up("garbled", f"the body cannot be unpacked: {error}")
                return
            if self._unpack.unused_data:
                self._give_up("garbled", "bytes follow the end of the gzip body")
                return
        self._room -= len(piece)
        if self._room < 0:
            self._give_up("too_large", "the body is longer than it may be")
        elif piece:
            self._parts.append(piece)

    def on_message_complete(self) -> None:
        if not self.status or self.wrong is not None:
            return
        self.whole = True
        if self._unpack is not None and not self._unpack.eof:
            self._give_up("garbled", "the gzip body ends early")

    # --- what follows from it

    def _frame(self, parser: HttpResponseParser) -> None:
        """Find out how the body comes, and whether the connection outlives it. RFC 9112, 6.3 and 9.3."""
        headers = self.headers
        self.keeps = parser.should_keep_alive() and self.status != _SWITCHING
        coding = headers.get("transfer-encoding", "chunked")
        if coding.lower() != "chunked":
            self._refuse(f"transfer coding {coding[:60]!r} was not asked for")
        elif self.status != OK:
            self._room = self.refusal_bytes_max
        elif (packed := headers.get("content-encoding", "").lower()) in ("gzip", "deflate"):
            # 32: tell gzip and zlib apart by their header
            self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif packed not in ("", "identity"):
            self._give_up("garbled", f"content encoding {packed[:20]!r} was not asked for")

    def _refuse(self, why: str) -> None:
        self._give_up("garbled", f"the answer is not HTTP: {why}")

    def _give_up(self, outcome: str, why: str) -> None:
        """Keep nothing of it: what was too large must not wait for the garbage collector."""
        if self.wrong is None:
            self.wrong = outcome, why
            self._parts.clear()
            self._unpack = None
