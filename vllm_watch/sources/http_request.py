"""A request as bytes: a URL is taken apart once, headers are looked at each time."""

import base64
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit

from vllm_watch import __version__

_DEFAULTS = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip, deflate",
    "User-Agent": f"vllm-watch/{__version__}",
}
_PORT_OF_SCHEME = {"http": 80, "https": 443}
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_UNSAFE = re.compile(r"[\0\r\n]").search


class Origin(NamedTuple):
    """Whom a connection leads to."""

    scheme: str
    host: str  # a name in ASCII, or an address without brackets
    port: int


class Place(NamedTuple):
    """What of a URL a request needs."""

    origin: Origin
    target: str  # path and query
    host: str  # what the header Host says
    authorization: str  # of the URL's user and password; "": it has none


def place(url: str) -> Place:
    """Take a URL apart. Raises ValueError where it is none."""
    parts = urlsplit(url)
    if parts.scheme not in _PORT_OF_SCHEME or not parts.hostname:
        raise ValueError("the URL does not lead to an HTTP server")
    name = parts.hostname.replace("%25", "%")
    name = name if name.isascii() else name.encode("idna").decode()
    usual = _PORT_OF_SCHEME[parts.scheme]
    port = parts.port if parts.port is not None else usual
    host = f"[{name.partition('%')[0]}]" if ":" in name else name
    if _UNSAFE(host) or " " in host:
        raise ValueError("the URL's host is no name")
    query = f"?{quote(parts.query, safe=_PATH_SAFE + '?')}" if parts.query else ""
    return Place(
        Origin(parts.scheme, name, port),
        quote(parts.path or "/", safe=_PATH_SAFE) + query,
        host if port == usual else f"{host}:{port}",
        _authorization(parts),
    )


def request(method: str, to: Place, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Write a request. Raises ValueError for a header that would break it apart."""
    lines = [f"{method} {to.target} HTTP/1.1\r\nHost: {to.host}\r\n"]
    for name, value in headers.items():
        if not _TOKEN(name) or _UNSAFE(value):
            raise ValueError(f"the header {name[:40]!r} cannot be sent")
        lines.append(f"{name}: {value}\r\n")
    given = {name.lower() for name in headers}
    lines += [f"{name}: {value}\r\n" for name, value in _DEFAULTS.items() if name.lower() not in given]  # fmt: skip
    if to.authorization and "authorization" not in given:
        lines.append(f"Authorization: {to.authorization}\r\n")
    if body is None:
        return f"{''.join(lines)}\r\n".encode()
    return f"{''.join(lines)}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _authorization(parts: SplitResult) -> str:
    if not parts.username and not parts.password:
        return ""
    both = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(both.encode()).decode()}"
