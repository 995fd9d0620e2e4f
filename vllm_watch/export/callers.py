"""Refuse cross-site requests from browsers, by the headers Host and Origin."""

import ipaddress
import re
from collections.abc import Callable, Collection

from aiohttp import web
from aiohttp.http import HttpVersion11
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.export.answers import refusal
from vllm_watch.sources.sockets import is_loopback
from vllm_watch.support.redaction import excerpt

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_OF_CLIENTS = re.compile(
    r"(accept|content|if|sec|access-control-request)-[a-z0-9-]+|accept|authorization|cache-control|connection|cookie|date|dnt"
    r"|expect|from|host|keep-alive|last-event-id|origin|pragma|priority|range|referer|save-data|te|trailer|transfer-encoding"
    r"|upgrade|upgrade-insecure-requests|user-agent|x-prometheus-scrape-timeout-seconds|x-requested-with"
)
"""Headers that curl, browsers, probes and Prometheus send, in lower case."""

PORT_MAX = 65_535
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_.-]{0,253})(?::([0-9]{1,5}))?")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def is_this_host(request: web.Request) -> bool:
    """Return True for requests from loopback, without a proxy."""
    return not is_proxied(request) and is_loopback(request.remote or "")


def is_proxied(request: web.Request) -> bool:
    """Return True if HTTP/1.0 (nginx's default) or a proxy's header is used."""
    names = (name.lower() for name in request.headers)
    return request.version < HttpVersion11 or not all(map(_OF_CLIENTS.fullmatch, names))


def only_from(bound: str, names: Collection[str], port: Callable[[], int]) -> Middleware:
    """Return the middleware that checks Host and Origin."""
    # An IP address as Host is safe, but anyone can point a DNS name at us.
    by_address = not is_loopback(bound)
    any_name = by_address and not names
    literal = f"[{bound}]" if ":" in bound else bound
    hosts = _LOOPBACK_NAMES | {literal.lower()} | {name.lower() for name in names}

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.raw_path.startswith("/"):
            return refusal(400, "This is not a proxy", "Ask for a path, which begins with /")
        given = request.headers.getall("Host", [""])
        host = _name_of(given[0]) if len(given) == 1 else None
        known = any_name or host in hosts or (by_address and _is_address(host or ""))
        if host is None or not known:
            where = "is bound to loopback and" if is_loopback(bound) else "knows its names and"
            return refusal(
                421,
                f"This watcher {where} does not answer to the name {given[0][:100]!r}",
                f"Open it as localhost:{port()}, or add the name to api.hosts",
            )
        # Probes are recorded, so cross-site probes are refused.
        is_noted = request.method != "OPTIONS" and request.path.startswith("/gate/")
        if request.method in _READING and not is_noted:
            return await handler(request)
        return _foreign(request) or await handler(request)

    return check


def _foreign(request: web.Request) -> web.Response | None:
    """Refuse cross-site changes. Forms are refused, because older browsers send no Origin."""
    origin = request.headers.get("Origin", "")
    own = origin.partition("://")[2].lower() == request.headers.get("Host", "").lower()
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if (origin and not own) or site not in ("same-origin", "none"):
        return refusal(
            403,
            f"A page of {excerpt(origin, 100) or 'another site'} may not do this",
            "Ask from the watcher's own page, or from a shell",
        )
    if request.can_read_body and request.content_type in _FORMS and request.headers.get("Content-Type"):  # fmt: skip
        return refusal(415, f"The content type {request.content_type} is not accepted",
                       "Send JSON, with Content-Type: application/json")  # fmt: skip
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host[1:-1]) if host.startswith("[") else ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _name_of(host: str) -> str | None:
    found = _HOST.fullmatch(host.lower())
    return found[1] if found and int(found[2] or 0) <= PORT_MAX else None
