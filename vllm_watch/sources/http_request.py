"""Build HTTP requests as bytes."""

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from vllm_watch import __version__

URL_CHARS_MAX = 2048
"""URLs with more characters are rejected, because a redirect may contain a URL of any length."""

PLACES_MAX = 4096
"""At most this many URLs are cached, with 1 to 10 kB each. Each target has two."""

_DEFAULTS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": f"vllm-watch/{__version__}",
}
_PORT_OF_SCHEME = {"http": 80, "https": 443}
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_HEADERS = re.compile(r"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++: [^\r\n\0]*+\r\n)*+").fullmatch
_NO_HOST = re.compile(r"[\0- ]").search


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
    if parts.scheme not in _PORT_OF_SCHEME or not parts.hostname:
        raise ValueError("the URL does not lead to an HTTP server")
    name = parts.hostname.replace("%25", "%")
    name = name if name.isascii() else name.encode("idna").decode()
    usual = _PORT_OF_SCHEME[parts.scheme]
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
