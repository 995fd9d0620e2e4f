"""Make bounded HTTP calls: the watcher's only way to talk to an engine."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from vllm_watch.samples.observation import Call
from vllm_watch.settings.tls import TlsConfig
from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_connection import Reply
from vllm_watch.sources.http_request import URL_CHARS_MAX
from vllm_watch.sources.http_session import Bounds, Session

CONNECT_SHARE = 0.75
"""Connecting may take at most this share of the time limit. Otherwise an unreachable server would seem to hang, and would be restarted."""

REDIRECTS_MAX = 2
"""At most this many redirects are followed. vLLM 0.3.3 to 0.4.1 redirects /metrics once, to /metrics/."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_ERROR_CHARS_MAX = 300
_SYSTEM_TLS = TlsConfig()


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a call. `timeout_seconds` includes receiving the last byte."""

    connect_timeout_seconds: float
    timeout_seconds: float
    body_bytes_max: int
    tls: TlsConfig = _SYSTEM_TLS


@dataclass(slots=True)
class Answer:
    """The outcome of a call and, if it succeeded, its content."""

    call: Call
    body: bytes = b""
    content_type: str = ""
    url: str = ""  # after redirects
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    arrived_monotonic_s: float = 0.0  # when the last byte came, or the call failed


def new_session() -> Session:
    """Return a session with keep-alive, without cookies and without proxies from the environment."""
    return Session()


async def get(session: Session, url: str, limits: Limits, headers: dict[str, str]) -> Answer:
    """GET a URL, following redirects on the same server. Never raises for errors of the server or the network."""
    began_s = time.monotonic()
    deadline_s = began_s + limits.timeout_seconds
    reply = await _fairly(session, url, limits, headers, limits.timeout_seconds)
    for _ in range(REDIRECTS_MAX):
        target = _on_same_server(url, reply.headers.get("location", ""))
        if reply.status not in _REDIRECTS or target is None:
            break
        url = target
        left_s = max(0.001, deadline_s - time.monotonic())
        reply = await _fairly(session, url, limits, headers, left_s)
    return _answer(reply, url, began_s)


async def post(
    session: Session, url: str, limits: Limits, headers: dict[str, str], body: bytes
) -> Answer:
    """POST once, without redirects. Never raises for errors of the server or the network."""
    began_s = time.monotonic()
    bounds = _bounds(limits, limits.timeout_seconds)
    reply = await session.ask("POST", url, headers, body, bounds)
    if own_trouble.is_late(reply.late_s, limits.timeout_seconds):
        reply = _held_up(reply.late_s)
    return _answer(reply, url, began_s)


def _answer(reply: Reply, url: str, began_s: float) -> Answer:
    arrived_s = reply.arrived_monotonic_s or time.monotonic()
    error = reply.error and reply.error[:_ERROR_CHARS_MAX]
    call = Call(outcome=reply.outcome, status=reply.status, error=error, latency_s=arrived_s - began_s - reply.waited_s, kept=reply.kept)  # fmt: skip
    content_type = reply.headers.get("content-type", "")
    return Answer(call, reply.body, content_type, url, reply.headers, arrived_s)


async def _fairly(
    session: Session, url: str, limits: Limits, headers: dict[str, str], seconds: float
) -> Reply:
    """Retry once if our event loop was late, because the response may have come in time."""
    late_s = 0.0
    for _ in range(2):
        reply = await session.ask("GET", url, headers, None, _bounds(limits, seconds))
        late_s = reply.late_s
        if not own_trouble.is_late(late_s, seconds):
            return reply
    return _held_up(late_s)


def _bounds(limits: Limits, seconds: float) -> Bounds:
    connect_s = min(limits.connect_timeout_seconds, CONNECT_SHARE * seconds)
    return Bounds(connect_s, seconds, limits.body_bytes_max, limits.tls)


def _held_up(late_s: float) -> Reply:
    return Reply(own_trouble.OUTCOME, own_trouble.held_up(late_s))


def _on_same_server(url: str, location: str) -> str | None:
    """Return the new URL, or None if it is on another server, which must not get the API key."""
    try:
        target = urljoin(url, location)
        if location and len(target) <= URL_CHARS_MAX and urlsplit(target)[:2] == urlsplit(url)[:2]:
            return target
    except ValueError:
        pass
    return None
