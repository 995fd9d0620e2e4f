"""Who may ask: a page of another site, opened in an operator's browser, must not reach a watcher on loopback.

Such a page can make the browser call http://127.0.0.1 (and, by DNS rebinding, read the answer). Its
requests carry its own name in Host or Origin, which is how they are told apart.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.export.answers import refusal

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def is_loopback(host: str) -> bool:
    """Is this the name or address of our own machine?"""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def allowed_hosts(bound: str, names: Collection[str]) -> frozenset[str] | None:
    """The Host names to answer to; None (any) unless we are bound to loopback.

    Bound to a network address, the watcher cannot know by which names it is reached.
    """
    if not is_loopback(bound):
        return None
    literal = f"[{bound}]" if ":" in bound else bound
    return _LOOPBACK_NAMES | {literal.lower()} | {name.lower() for name in names}


def only_from(hosts: frozenset[str] | None, port: int) -> Middleware:
    """Make the middleware that refuses other Hosts, and changes that another site asks for."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = _without_port(request.headers.get("Host", ""))
        if hosts is not None and host not in hosts:
            return refusal(
                421,
                f"This watcher is bound to loopback and does not answer to the name {host[:100]!r}",
                f"Open it as http://localhost:{port}, or listen on a network address",
            )
        origin = request.headers.get("Origin", "")
        own = urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower()
        if origin and not own and request.method not in {"GET", "HEAD"}:
            return refusal(
                403,
                f"A page of {origin[:100]} may not do this",
                "Ask from the watcher's own page, or from a shell",
            )
        return await handler(request)

    return check


def _without_port(host: str) -> str:
    host = host.lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
