"""Make bounded HTTP calls: the watcher's only way to talk to an engine.

A session shares reusable connections, addresses and TLS contexts between its calls. Servers close
idle connections, so a GET is retried once if a reused connection was closed before any byte of the
response. Other methods always use a new connection.
"""

import asyncio
import errno
import re
import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from urllib.parse import urljoin, urlsplit

import aiohappyeyeballs

from vllm_watch.samples.observation import Call
from vllm_watch.settings.tls import TlsConfig, TlsFileError
from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_caches import Names, Trust
from vllm_watch.sources.http_connection import Connection, Reply, Wanted
from vllm_watch.sources.http_messages import URL_CHARS_MAX, Origin, place, request
from vllm_watch.support import descriptors

CONNECT_SHARE = 0.75
"""Connecting may take at most this share of the time limit. Otherwise an unreachable server would seem to hang, and would be restarted."""

REDIRECTS_MAX = 2
"""At most this many redirects are followed. vLLM 0.3.3 to 0.4.1 redirects /metrics once, to /metrics/."""

IDLE_SECONDS = 75.0
"""An idle connection is closed after this many seconds."""

KEPT_SECONDS = 5.0
"""A connection is reused for at most this many seconds. It reaches only one process of a server, and another process may hang."""

HEAD_START_SECONDS = 0.25
"""After this many seconds, the host's next address is tried in parallel (RFC 8305, section 8)."""

ROOM_BYTES = 256 << 10
"""Size of the receive buffer in bytes. A typical /metrics response fits, and is read in one turn of the
event loop."""

# An aborted connection ends in the next turn of the event loop, with TLS two turns later.
_CLOSE_TURNS = 4

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


class _To(NamedTuple):
    origin: Origin
    tls: TlsConfig


class Session:
    """Makes HTTP calls, without cookies and without proxies from the environment.

    If `connections_max` connections are open, a call replaces an idle connection, or waits.
    """

    def __init__(self, names: Names | None = None, connections_max: int | None = None) -> None:
        most = descriptors.for_engines() if connections_max is None else connections_max
        self._seats = asyncio.Semaphore(most)
        self._waiting = 0
        self._names = names if names is not None else Names()
        self._trust = Trust()
        self._idle: dict[_To, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._closed = False
        self._room = memoryview(bytearray(ROOM_BYTES))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def connections(self) -> int:
        return len(self._open)

    async def close(self) -> None:
        self._closed = True
        self._names.close()
        for connection in list(self._open):
            connection.abort()
        for _ in range(_CLOSE_TURNS):
            await asyncio.sleep(0)

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, limits: Limits, seconds: float
    ) -> Reply:  # fmt: skip
        """Make one call, which ends within `seconds`."""
        if self._closed:
            raise RuntimeError("the session is closed")
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        try:
            parsed = place(url)
            question = request(method, parsed, headers, body)
        except ValueError as error:
            return Reply("garbled", f"invalid request: {error}")
        to = _To(parsed.origin, limits.tls)
        wanted = Wanted(now_s + seconds, seconds, limits.body_bytes_max)
        if method == "GET" and (kept := self._kept(to)) is not None:
            reply = await self._exchange(to, kept, question, wanted)
            if reply.outcome != "disconnected" or kept.begun:
                return reply._replace(kept=True)
        asked_s = loop.time()
        seat = await self._seat(seconds)
        if seat is None:
            return Reply(own_trouble.OUTCOME, own_trouble.NO_PLACE)
        # Our own wait for a permit does not count against the server's time.
        waited_s = loop.time() - asked_s
        wanted = wanted._replace(deadline_s=wanted.deadline_s + waited_s)
        connect_s = min(limits.connect_timeout_seconds, CONNECT_SHARE * seconds)
        made: Connection | Reply | None = None
        try:
            made = await self._begun(to, connect_s, wanted, seat)
        finally:
            if not isinstance(made, Connection):
                seat.close()
        reply = (
            made if isinstance(made, Reply) else await self._exchange(to, made, question, wanted)
        )
        return reply._replace(waited_s=waited_s)

    async def _exchange(
        self, to: _To, connection: Connection, question: bytes, wanted: Wanted
    ) -> Reply:
        reply = await connection.exchange(question, wanted)
        kept = connection.reusable and not self._closed and connection.is_fresh(KEPT_SECONDS)
        # While another call waits for a permit, an idle connection would hold it.
        if kept and not self._waiting:
            connection.keep_idle(IDLE_SECONDS)
            self._idle.setdefault(to, []).append(connection)
        else:
            connection.abort()
        return reply

    def _kept(self, to: _To) -> Connection | None:
        while kept := self._idle.pop(to, None):
            connection = kept.pop()
            if kept:
                self._idle[to] = kept
            connection.keep_idle()
            if connection.is_open:
                return connection
        return None

    async def _seat(self, seconds: float) -> ExitStack | None:
        if self._seats.locked():
            self._end_idle()
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._seats.acquire()
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1
        seat = ExitStack()  # which gives the permit back once
        seat.callback(self._seats.release)
        return seat

    def _end_idle(self) -> None:
        to = next(iter(self._idle), None)
        if to is not None:
            kept = self._idle[to]
            kept.pop(0).abort()
            if not kept:
                del self._idle[to]

    def _lost(self, to: _To, connection: Connection, seat: ExitStack) -> None:
        self._open.discard(connection)
        seat.close()
        kept = self._idle.get(to, [])
        if connection in kept:
            kept.remove(connection)
        if not kept:
            self._idle.pop(to, None)

    async def _begun(
        self, to: _To, seconds: float, wanted: Wanted, seat: ExitStack
    ) -> Connection | Reply:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            async with asyncio.timeout_at(wanted.deadline_s):
                secure = await self._trust.context(to.tls) if to.origin.scheme == "https" else None
        except TimeoutError:
            cause = f"vllm-watch could not read its CA certificates or its own within {wanted.seconds:g} s (check the disk that holds them, and whether vllm-watch is short of CPU)"
            return Reply(own_trouble.OUTCOME, cause)
        except (OSError, TlsFileError, ValueError, MemoryError) as error:
            return _not_connected("", error)
        # Loading certificates does not count against the server's time.
        read_s = loop.time() - began_s
        connect_by_s = began_s + read_s + seconds
        due_s = min(connect_by_s, wanted.deadline_s)
        try:
            async with asyncio.timeout_at(due_s) as limit:
                connection = await self._connect(to, secure, seat)
        except TimeoutError:
            if not limit.expired():
                raise
            late_s = loop.time() - due_s
            if due_s < connect_by_s:
                # The time was spent on a reused connection that hung, or on loading certificates.
                cause = f"connected, but no complete answer within {wanted.seconds:g} s"
                return Reply("read_timeout", cause, late_s=late_s + read_s)
            return Reply("connect_timeout", f"no connection within {seconds:g} s", late_s=late_s)
        if isinstance(connection, Connection):
            self._open.add(connection)
            if not connection.is_open:
                self._open.discard(connection)
            elif self._closed:
                connection.abort()
        return connection

    async def _connect(
        self, to: _To, secure: ssl.SSLContext | None, seat: ExitStack
    ) -> Connection | Reply:
        loop, (_, host, port) = asyncio.get_running_loop(), to.origin
        step = "dns"
        try:
            addresses = await self._names.addresses(host, port)
            step = "tcp"
            sock = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=HEAD_START_SECONDS, interleave=1
            )
            step = "handshake"
            name = to.tls.server_name or host.partition("%")[0].rstrip(".")
            _, connection = await loop.create_connection(
                lambda: Connection(self._room, lambda lost: self._lost(to, lost, seat)),
                sock=sock, ssl=secure, server_hostname=name if secure else None,
            )  # fmt: skip
        except (OSError, ValueError, MemoryError) as error:
            if isinstance(error, ssl.SSLError):
                self._trust.refused(to.tls)
            return _not_connected(step, error)
        return connection


def _not_connected(step: str, error: Exception) -> Reply:
    cause, number = str(error), getattr(error, "errno", None)
    # If several addresses failed differently, one error joins their texts.
    numbers = [number] if number else [int(each) for each in re.findall(r"\[Errno (\d+)\]", cause)]
    if step == "tcp" and errno.ECONNREFUSED in numbers:
        return Reply("refused", "connection refused: nothing listens on its port")
    for each in (error, *(OSError(number, cause) for number in numbers)):
        if (ours := own_trouble.of_error(each)) is not None:
            return Reply(own_trouble.OUTCOME, ours)
    if step == "dns":
        return Reply("dns", f"the host name does not resolve: {cause}")
    if isinstance(error, TlsFileError):
        return Reply("tls", f"{cause} ({error.remedy})")
    if isinstance(error, ssl.SSLError | ValueError):
        return Reply("tls", f"the TLS handshake failed: {cause}")
    if step == "handshake":  # a dead server behind a load balancer fails here, too
        cause = f"the server broke off in the TLS handshake {cause}".rstrip()
    return Reply("connect_timeout", f"no connection: {getattr(error, 'strerror', None) or cause}")


async def get(session: Session, url: str, limits: Limits, headers: dict[str, str]) -> Answer:
    """GET a URL, following redirects on the same server. Never raises for errors of the server or the network."""
    began_s = time.monotonic()
    deadline_s = began_s + limits.timeout_seconds
    reply = await _fairly(session, "GET", url, headers, None, limits, limits.timeout_seconds)
    for _ in range(REDIRECTS_MAX):
        target = _on_same_server(url, reply.headers.get("location", ""))
        if reply.status not in _REDIRECTS or target is None:
            break
        url = target
        left_s = max(0.001, deadline_s - time.monotonic())
        reply = await _fairly(session, "GET", url, headers, None, limits, left_s)
    return _answer(reply, url, began_s)


async def post(
    session: Session, url: str, limits: Limits, headers: dict[str, str], body: bytes
) -> Answer:
    """POST once, without redirects. Never raises for errors of the server or the network."""
    began_s = time.monotonic()
    reply = await _fairly(session, "POST", url, headers, body, limits, limits.timeout_seconds)
    return _answer(reply, url, began_s)


def _answer(reply: Reply, url: str, began_s: float) -> Answer:
    arrived_s = reply.arrived_monotonic_s or time.monotonic()
    error = reply.error and reply.error[:_ERROR_CHARS_MAX]
    call = Call(outcome=reply.outcome, status=reply.status, error=error, latency_s=arrived_s - began_s - reply.waited_s, kept=reply.kept)  # fmt: skip
    content_type = reply.headers.get("content-type", "")
    return Answer(call, reply.body, content_type, url, reply.headers, arrived_s)


async def _fairly(
    session: Session, method: str, url: str, headers: dict[str, str], body: bytes | None,
    limits: Limits, seconds: float,
) -> Reply:  # fmt: skip
    """Retry a GET once if our event loop was late, because the response may have come in time."""
    late_s = 0.0
    for _ in range(2 if method == "GET" else 1):
        reply = await session.ask(method, url, headers, body, limits, seconds)
        late_s = reply.late_s
        if not own_trouble.is_late(late_s, seconds):
            return reply
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
