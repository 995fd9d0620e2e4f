"""An HTTP/1.x answer, read as it arrives, in any pieces: its head, its body, and where it ends. No I/O.

Strict, since who answers otherwise may not be who was asked: what RFC 9112 leaves to a client's good
will (folded headers, bare line feeds, two lengths, spaces before a colon) is refused, not guessed at.
Source: RFC 9112 (messages, framing, chunks), RFC 9110 (fields, status codes).
"""

import re

from vllm_watch.sources.http_failures import NotHttpError

HEAD_BYTES_MAX = 64 << 10
"""Of one head: servers send hundreds of bytes, and proxies with long policies some thousands."""

HEADERS_MAX = 128
INFORMATIONAL_MAX = 16
"""Heads of status 1xx before the answer; one is usual (103), and an endless row of them is no answer."""

LINE_BYTES_MAX = 4096
"""Of a chunk's size with its extensions, and of a trailer."""

FRAMING_BYTES_MAX = 4 << 20
"""Of all these lines together: a body in chunks of a byte each would cost us much more than its sender."""

OK = 200
_SWITCHING = 101
_BODILESS = (_SWITCHING, 204, 304)
_VERSION = b"HTTP/1."
_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_TEXT = r"[^\r\n\0]*+"
_STATUS = rf"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: {_TEXT})?"
_STATUS_LINE = re.compile(_STATUS).fullmatch
_HEADER = re.compile(rf"{_NAME}:{_TEXT}").fullmatch
_WHOLE_HEAD = re.compile(rf"{_STATUS}(?:\r\n{_NAME}:{_TEXT})*+").fullmatch
_LENGTH = re.compile(r"[0-9]{1,18}").fullmatch
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?").fullmatch
_SHOWN = 60

_HEAD, _KNOWN_LENGTH, _UNTIL_CLOSE, _SIZE, _CHUNK_DATA, _CHUNK_END, _TRAILER = range(7)


class ResponseReader:
    """Reads one answer; `status` is 0 until its head is there."""

    __slots__ = (
        "_framing_left", "_headers_left", "_informational_left", "_left", "_pending", "_state",
        "extra", "headers", "keeps", "status", "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # by names in lower case; several of a name are joined
        self.whole = False
        self.extra = False  # did more come than the answer?
        self.keeps = False  # may the connection be used again once the answer is whole?
        self._state = _HEAD
        self._pending = b""  # what came of a head or a line that has not ended
        self._left = 0  # bytes of the body, or of its chunk, that have not come
        self._framing_left = FRAMING_BYTES_MAX
        self._headers_left = HEADERS_MAX
        self._informational_left = INFORMATIONAL_MAX

    def feed(self, data: bytes) -> bytes:
        """Take what arrived and return what of the body is in it. Raises NotHttpError."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        at = self._heads(data) if self._state == _HEAD else 0
        if self._state == _HEAD:
            return b""
        if self.whole:
            body = b""
        elif self._state == _UNTIL_CLOSE:
            return data[at:] if at else data
        elif self._state == _KNOWN_LENGTH:
            body = data[at : at + self._left]
            at += len(body)
            self._left -= len(body)
            self.whole = self._left == 0
        else:
            body, at = self._chunks(data, at)
        self.extra = self.whole and at < len(data)
        return body

    def end(self) -> bool:
        """The connection was closed properly: is the answer whole?"""
        if self._state == _UNTIL_CLOSE:
            self.whole = True
        return self.whole

    def _heads(self, data: bytes) -> int:
        """Read the head, and those of status 1xx before it; return where the body begins."""
        at = 0
        while True:
            end = data.find(b"\r\n\r\n", at)
            if end - at > HEAD_BYTES_MAX or (end < 0 and len(data) - at > HEAD_BYTES_MAX):
                raise NotHttpError(f"its head is longer than {HEAD_BYTES_MAX} bytes")
            if end < 0:
                self._pending = data[at:]
                _refuse_early(self._pending)
                return 0
            minor = self._head(data[at:end])
            at = end + 4
            if self.status >= OK or self.status == _SWITCHING:
                self._frame(minor)
                return at
            self._informational_left -= 1
            if not self._informational_left:
                raise NotHttpError(f"over {INFORMATIONAL_MAX} informational answers")
            self.status = 0

    def _head(self, head: bytes) -> int:
        """Read status and headers; return the minor version."""
        text = head.decode("latin-1")
        found = _WHOLE_HEAD(text)
        lines = text.split("\r\n")
        if found is None:
            raise NotHttpError(_wrong_with(lines))
        if len(lines) > 1 + HEADERS_MAX:
            raise NotHttpError(f"more than {HEADERS_MAX} headers")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip(" \t")
            # Of two lengths, or two codings, come words that are no length and no coding.
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self.status, self.headers = int(found[2]), headers
        return int(found[1])

    def _frame(self, minor: int) -> None:
        """Find out how the body will end, and whether the connection outlives it. RFC 9112, 6.3 and 9.3."""
        headers = self.headers
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        said = headers.get("connection")
        keeps = minor > 0
        if said is not None:
            words = [word.strip(" \t") for word in said.lower().split(",")]
            keeps = "close" not in words and (keeps or "keep-alive" in words)
        if coding is not None:
            if length is not None:
                raise NotHttpError("both Content-Length and Transfer-Encoding")
            if coding.lower() != "chunked":
                raise NotHttpError(f"transfer coding {coding[:_SHOWN]!r} was not asked for")
            keeps = keeps and minor > 0
            self._state = _SIZE
        elif length is not None:
            if not _LENGTH(length):
                raise NotHttpError(f"Content-Length {length[:_SHOWN]!r} is not a number of bytes")
            self._left = int(length)
            self._state = _KNOWN_LENGTH
        else:
            self._state = _UNTIL_CLOSE
        if self.status in _BODILESS:
            self._state, self.whole = _KNOWN_LENGTH, True
        elif self._state == _KNOWN_LENGTH:
            self.whole = self._left == 0
        self.keeps = keeps and self._state != _UNTIL_CLOSE and self.status != _SWITCHING

    def _chunks(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Return what of the body came, and how far `data` was read."""
        pieces: list[bytes] = []
        end = len(data)
        while at < end and not self.whole:
            if self._state == _CHUNK_DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._state = _CHUNK_END
            elif self._state == _CHUNK_END:
                after = data[at : at + 2]
                if not b"\r\n".startswith(after):
                    raise NotHttpError(f"a chunk is longer than it said: {after!r} follows it")
                if len(after) == 1:
                    self._pending = after
                    at += 1
                else:
                    at += 2
                    self._state = _SIZE
            else:
                line_end = self._line_end(data, at)
                if line_end < 0:
                    self._pending = data[at:]
                    return b"".join(pieces), end
                self._line(data[at : line_end - 1])
                at = line_end + 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), at

    def _line_end(self, data: bytes, at: int) -> int:
        """Return where the line feed of this line is; -1: it has not come."""
        found = data.find(b"\n", at, at + LINE_BYTES_MAX)
        if found < 0:
            if len(data) - at >= LINE_BYTES_MAX:
                raise NotHttpError(f"a line between chunks is longer than {LINE_BYTES_MAX} bytes")
            return -1
        if data[found - 1 : found] != b"\r" or found == at:
            raise NotHttpError("a bare line feed between chunks")
        self._framing_left -= found + 1 - at
        if self._framing_left < 0:
            raise NotHttpError(f"over {FRAMING_BYTES_MAX} bytes of chunk sizes")
        return found

    def _line(self, line: bytes) -> None:
        """Take the size of a chunk, or a trailer, or the empty line that ends it all."""
        if self._state == _SIZE:
            found = _CHUNK(line)
            if found is None:
                raise NotHttpError(f"bad chunk size {line[:_SHOWN]!r}")
            self._left = int(found[1], 16)
            self._state = _CHUNK_DATA if self._left else _TRAILER
        elif line:
            self._headers_left -= 1
            trailer = line.decode("latin-1")
            if self._headers_left < 0 or not _HEADER(trailer):
                raise NotHttpError(f"bad trailer {trailer[:_SHOWN]!r}, or too many")
        else:
            self.whole = True


def _wrong_with(lines: list[str]) -> str:
    """Say which line makes a head none."""
    if not _STATUS_LINE(lines[0]):
        return f"bad status line {lines[0][:_SHOWN]!r}"
    return next(f"bad header {line[:_SHOWN]!r}" for line in lines[1:] if not _HEADER(line))


def _refuse_early(begun: bytes) -> None:
    """Refuse at once what no further byte can make a head, in place of waiting for its end."""
    if not begun.startswith(_VERSION) and not _VERSION.startswith(begun):
        raise NotHttpError(f"bad status line {begun[:_SHOWN].decode('latin-1')!r}")
    if begun.count(b"\n") != begun.count(b"\r\n"):
        raise NotHttpError("a bare line feed in its head")
