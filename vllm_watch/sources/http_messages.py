"""Build HTTP requests as bytes, and parse HTTP/1.x responses.

llhttp (through httptools) has no size limits, so they are enforced here. Source: RFC 9112 and 9110.
"""

import base64
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from vllm_watch import __version__
from vllm_watch.samples.target import PORT_OF_SCHEME

URL_CHARS_MAX = 2048
"""URLs with more characters are rejected, because a redirect may contain a URL of any length."""

PLACES_MAX = 4096
"""At most this many URLs are cached, with 1 to 10 kB each. Each target has two."""

_DEFAULTS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": f"vllm-watch/{__version__}",
}
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_HEADERS = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++: [^\r\n\0]*+\r\n)*+").fullmatch
_NO_HOST = re.compile(r"[\0- ]").search

HEAD_BYTES_MAX = 64 << 10
"""Maximum bytes of a response's head. Proxies with long policies send thousands of bytes."""

HEADERS_MAX = 128  # including trailers

INFORMATIONAL_MAX = 16
"""Maximum number of 1xx responses before the final one."""

FRAMING_BYTES_MAX = 256 << 10
"""Maximum bytes of a response's head, chunk sizes and trailers together. A chunk of one byte takes 40 bytes of memory."""

OK = 200
_SWITCHING = 101


class Origin(NamedTuple):
    """The endpoint of a connection."""

    scheme: str
    host: str  # a name in ASCII, or an address without brackets
    port: int


class Place(NamedTuple):
    """A parsed URL."""

    origin: Origin
    target: str  # path and query
    host: str
    authorization: str


@lru_cache(PLACES_MAX)
def place(url: str) -> Place:
    """Parse a URL. Raises ValueError if it is invalid."""
    if len(url) > URL_CHARS_MAX:
        raise ValueError(f"the URL is longer than {URL_CHARS_MAX} characters")
    parts = urlsplit(url)
    if parts.scheme not in PORT_OF_SCHEME or not parts.hostname:
        raise ValueError("the URL does not lead to an HTTP server")
    name = parts.hostname.replace("%25", "%")
    name = name if name.isascii() else name.encode("idna").decode()
    usual = PORT_OF_SCHEME[parts.scheme]
    port = parts.port if parts.port is not None else usual
    host = f"[{name.partition('%')[0]}]" if ":" in name else name
    if _NO_HOST(host):
        raise ValueError("the URL's host is not a name")
    query = f"?{quote(parts.query, safe=_PATH_SAFE + '?')}" if parts.query else ""
    return Place(
        Origin(parts.scheme, name, port),
        quote(parts.path or "/", safe=_PATH_SAFE) + query,
        host if port == usual else f"{host}:{port}",
        _authorization(parts),
    )


def request(method: str, to: Place, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the bytes of a request. Raises ValueError for an unsafe header. Header names must be in their usual case."""
    all_headers = {**_DEFAULTS, **headers}
    if to.authorization and "Authorization" not in all_headers:
        all_headers["Authorization"] = to.authorization
    if body is not None:
        all_headers["Content-Length"] = str(len(body))
    lines = "".join([f"{name}: {value}\r\n" for name, value in all_headers.items()])
    if not _HEADERS(lines) or lines.count("\n") != len(all_headers):
        raise ValueError("a header holds a line break, or has no name")
    return f"{method} {to.target} HTTP/1.1\r\nHost: {to.host}\r\n{lines}\r\n".encode() + (
        body or b""
    )


def _authorization(parts: SplitResult) -> str:
    if not parts.username and not parts.password:
        return ""
    both = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"


class ResponseReader:
    """Reads responses. Call `expect` before each response; `status` is 0 until the head is complete."""

    __slots__ = (
        "_body_bytes_left", "_framing_left", "_head_left", "_headers_left", "_informational_left", "_parser", "_parts",
        "_unpack", "body_bytes", "complete", "error", "headers", "keep_alive", "refusal_bytes_max", "status", "trailing_data",
    )  # fmt: skip

    def __init__(self) -> None:
        # A reference cycle: without `close`, only the garbage collector could free it.
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.expect(0)

    def expect(self, body_bytes_max: int, refusal_bytes_max: int = 0) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case; duplicates are joined
        self.body_bytes = 0  # as received, perhaps compressed
        self.complete = False
        self.trailing_data = False
        self.keep_alive = False
        self.error: tuple[str, str] | None = None
        self.refusal_bytes_max = refusal_bytes_max
        self._body_bytes_left = body_bytes_max
        self._parts: list[bytes] = []
        self._unpack: zlib._Decompress | None = None
        self._head_left = HEAD_BYTES_MAX
        self._headers_left = HEADERS_MAX
        self._informational_left = INFORMATIONAL_MAX
        self._framing_left = FRAMING_BYTES_MAX

    def close(self) -> None:
        self._parser = None

    @property
    def ended(self) -> bool:
        if self.error is not None or self.complete:
            return True
        return self.status not in (0, OK) and self._body_bytes_left <= 0

    def feed(self, data: bytes | memoryview) -> None:
        """Parse `data`. Raises MemoryError."""
        if self._parser is None or self.error is not None:
            return
        before = self.body_bytes
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # an unsolicited change of protocol
            self.complete = self.trailing_data = True
        except HttpParserCallbackError as error:
            raise (error.__context__ or error) from None
        except HttpParserError as error:
            if self.complete:
                self.trailing_data = True
            else:
                self._refuse(str(error))
        self._framing_left -= len(data) - (self.body_bytes - before)
        if self._framing_left < 0:
            self._refuse(f"over {FRAMING_BYTES_MAX} bytes of chunk sizes and trailers")
        elif not self.status and FRAMING_BYTES_MAX - self._framing_left > HEAD_BYTES_MAX:
            self._refuse(f"its head is longer than {HEAD_BYTES_MAX} bytes")

    def end(self) -> bool:
        known = "content-length" in self.headers or "transfer-encoding" in self.headers
        if self.status and not known:
            self.on_message_complete()
        return self.complete

    def body(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def on_message_begin(self) -> None:
        self.trailing_data = self.trailing_data or self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers_left -= 1
        self._head_left -= len(name) + len(value)
        if self._headers_left < 0:
            self._refuse(f"more than {HEADERS_MAX} headers")
        elif self._head_left < 0:
            self._refuse(f"its head is longer than {HEAD_BYTES_MAX} bytes")
        elif not self.status:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
            # Joined duplicates of a length or coding header are invalid, and are refused.
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None or self.trailing_data or self.error is not None:
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
        if self.error is not None or self.trailing_data:
            return
        if self.status != OK:
            piece = piece[: max(0, self._body_bytes_left)]
        elif self._unpack is not None:
            try:
                piece = self._unpack.decompress(piece, self._body_bytes_left + 1)
            except zlib.error as error:
                self._give_up("garbled", f"the body cannot be unpacked: {error}")
                return
            if self._unpack.unused_data:
                self._give_up("garbled", "bytes follow the end of the gzip body")
                return
        self._body_bytes_left -= len(piece)
        if self._body_bytes_left < 0:
            self._give_up("too_large", "the body is longer than it may be")
        elif piece:
            self._parts.append(piece)

    def on_message_complete(self) -> None:
        if not self.status or self.error is not None:
            return
        self.complete = True
        if self._unpack is not None and not self._unpack.eof:
            self._give_up("garbled", "the gzip body ends early")

    def _frame(self, parser: HttpResponseParser) -> None:
        """Source: RFC 9112, 6.3 and 9.3."""
        headers = self.headers
        self.keep_alive = parser.should_keep_alive() and self.status != _SWITCHING
        coding = headers.get("transfer-encoding", "chunked")
        if coding.lower() != "chunked":
            self._refuse(f"transfer coding {coding[:60]!r} was not asked for")
        elif self.status != OK:
            self._body_bytes_left = self.refusal_bytes_max
        elif (packed := headers.get("content-encoding", "").lower()) in ("gzip", "deflate"):
            # 32: detect gzip or zlib by the header
            self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif packed not in ("", "identity"):
            self._give_up("garbled", f"content encoding {packed[:20]!r} was not asked for")

    def _refuse(self, why: str) -> None:
        self._give_up("garbled", f"the answer is not HTTP: {why}")

    def _give_up(self, outcome: str, why: str) -> None:
        """Free the body at once, without waiting for the garbage collector."""
        if self.error is None:
            self.error = outcome, why
            self._parts.clear()
            self._unpack = None
