"""One bounded HTTP call, and how it ended: the only way in which the watcher talks to an engine."""

import asyncio
import errno
import time
import zlib
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

import aiohttp

from vllm_watch.samples.observation import Call
from vllm_watch.sources import own_trouble

CONNECT_SHARE = 0.75
"""Of a call's time, so much at most is spent on the connection. Where both ran out at the same moment, who
was never reached would pass for one that takes connections and hangs, and a restart would be advised."""

REDIRECTS_MAX = 2
"""vLLM 0.3.3 to 0.4.1 redirects /metrics to /metrics/; nothing needs more than one and a spare."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_ERROR_CHARS_MAX = 300
_REFUSAL_BYTES_MAX = 2048  # of a body that says why a POST was refused: a sentence or two


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one call: seconds until connected, seconds until the last byte, bytes of the body."""

    connect_timeout_seconds: float
    timeout_seconds: float
    body_bytes_max: int


@dataclass(slots=True)
class Answer:
    """How a call ended and, where it ended well, what it brought."""

    call: Call
    body: bytes = b""
    content_type: str = ""
    url: str = ""  # where the answer came from, after redirects
    headers: dict[str, str] = field(default_factory=dict)
    timed_out: bool = False  # did it end by our own clock?


def new_session() -> aiohttp.ClientSession:
    """A session that keeps connections alive and leaves unpacking to `get`, which bounds it."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=75, ttl_dns_cache=30)
    return aiohttp.ClientSession(
        connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
    )


async def get(
    session: aiohttp.ClientSession, url: str, limits: Limits, headers: dict[str, str]
) -> Answer:
    """GET `url`. Never raises for anything that the other side or the network does."""
    started = time.monotonic()
    deadline = started + limits.timeout_seconds
    answer = await _fairly(session, url, limits, headers, limits.timeout_seconds)
    for _ in range(REDIRECTS_MAX):
        location = answer.headers.get("Location")
        if answer.call.status not in _REDIRECTS or location is None:
            break
        there = _on_same_server(url, location)
        if there is None:
            break
        url = there
        left = max(0.001, deadline - time.monotonic())
        answer = await _fairly(session, url, limits, headers, left)
    call = answer.call
    answer.call = Call(
        outcome=call.outcome,
        status=call.status,
        error=call.error,
        latency_s=time.monotonic() - started,
    )
    answer.url = url
    return answer


async def post(
    session: aiohttp.ClientSession, url: str, limits: Limits, headers: dict[str, str], body: bytes
) -> Answer:
    """POST `body`, once; redirects are not followed. Never raises for anything that the other side does.

    An answer other than 200 keeps the beginning of its body, which says what was wrong.
    """
    started = time.monotonic()
    answer = await _once(session, "POST", url, limits, headers, limits.timeout_seconds, body)
    late_s = _late_seconds(answer, started, limits, limits.timeout_seconds)
    if own_trouble.is_late(late_s, limits.timeout_seconds):
        answer = _held_up(late_s)
    answer.call = replace(answer.call, latency_s=time.monotonic() - started)
    answer.url = url
    return answer


async def _fairly(
    session: aiohttp.ClientSession,
    url: str,
    limits: Limits,
    headers: dict[str, str],
    seconds: float,
) -> Answer:
    """GET, once more where we did not run while the answer was due: it may have come in time."""
    late_s = 0.0
    for _ in range(2):
        started = time.monotonic()
        answer = await _once(session, "GET", url, limits, headers, seconds)
        late_s = _late_seconds(answer, started, limits, seconds)
        if not own_trouble.is_late(late_s, seconds):
            return answer
    return _held_up(late_s)


def _late_seconds(answer: Answer, started: float, limits: Limits, seconds: float) -> float:
    """By how much a time-out came later than it was due; 0 where the call did not time out."""
    due = {"read_timeout": seconds, "connect_timeout": _connect_seconds(limits, seconds)}
    if answer.call.outcome not in due or not answer.timed_out:
        return 0.0
    return time.monotonic() - started - due[answer.call.outcome]


def _connect_seconds(limits: Limits, seconds: float) -> float:
    return min(limits.connect_timeout_seconds, CONNECT_SHARE * seconds)


def _held_up(late_s: float) -> Answer:
    return Answer(Call(outcome=own_trouble.OUTCOME, error=own_trouble.held_up(late_s)))


def _on_same_server(url: str, location: str) -> str | None:
    """Where a redirect leads; None: elsewhere, or nowhere.

    Another host could be anyone's: keys and trust end at the origin that was configured.
    """
    try:
        there = urljoin(url, location)
        return there if urlsplit(there)[:2] == urlsplit(url)[:2] else None
    except ValueError:
        return None


async def _once(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    limits: Limits,
    headers: dict[str, str],
    seconds: float,
    body: bytes | None = None,
) -> Answer:
    connect = _connect_seconds(limits, seconds)
    timeout = aiohttp.ClientTimeout(total=seconds, connect=connect, sock_connect=connect)
    try:
        async with session.request(
            method, url, headers=headers, data=body, timeout=timeout, allow_redirects=False
        ) as response:
            return await _receive(response, limits.body_bytes_max)
    except (aiohttp.ClientError, OSError, ValueError, zlib.error, MemoryError) as error:
        call = _failed(error, limits, seconds)
        return Answer(call, timed_out=isinstance(error, TimeoutError))


async def _receive(response: aiohttp.ClientResponse, bytes_max: int) -> Answer:
    headers = dict(response.headers)
    status = response.status
    if status != 200:  # noqa: PLR2004
        refusal = b""
        if response.method == "POST":
            refusal = await response.content.read(_REFUSAL_BYTES_MAX)
        call = Call(outcome="http", status=status, error=f"HTTP {status}")
        return Answer(call, refusal, headers=headers)
    unpack = _unpacker(response.headers.get("Content-Encoding", ""))
    parts: list[bytes] = []
    room = bytes_max
    async for chunk in response.content.iter_any():
        part = unpack.decompress(chunk, room + 1) if unpack is not None else chunk
        if unpack is not None and unpack.unused_data:
            response.close()
            said = "bytes follow the end of the gzip body"
            call = Call(outcome="garbled", status=status, error=said)
            return Answer(call, headers=headers)
        room -= len(part)
        if room < 0:
            response.close()
            said = f"the body is longer than {bytes_max} bytes"
            return Answer(Call(outcome="too_large", status=status, error=said), headers=headers)
        parts.append(part)
    if unpack is not None and not unpack.eof:
        return Answer(
            Call(outcome="garbled", status=status, error="the gzip body ends early"),
            headers=headers,
        )
    content_type = response.headers.get("Content-Type", "")
    return Answer(Call(outcome="ok", status=status), b"".join(parts), content_type, headers=headers)


def _unpacker(encoding: str) -> "zlib._Decompress | None":
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "deflate"):
        return zlib.decompressobj(
            zlib.MAX_WBITS | 32
        )  # 32: tell gzip and zlib apart by their header
    raise ValueError(f"content encoding {encoding[:20]!r} was not asked for")


def _failed(error: BaseException, limits: Limits, seconds: float) -> Call:
    ours = own_trouble.of_error(error)
    outcome, said = (own_trouble.OUTCOME, ours) if ours else _outcome(error, limits, seconds)
    return Call(outcome=outcome, error=said[:_ERROR_CHARS_MAX])


def _refused(error: OSError) -> bool:
    """Does one address refuse, and no other answer? The errors of several (IPv6 without a route, say) are one text."""
    return error.errno == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error)


def _outcome(error: BaseException, limits: Limits, seconds: float) -> tuple[str, str]:  # noqa: C901 - a table
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "dns", f"the host name does not resolve: {error.os_error}"
        case aiohttp.ClientSSLError():
            return "tls", f"the TLS handshake failed: {error.os_error}"
        case aiohttp.ConnectionTimeoutError():
            return (
                "connect_timeout",
                f"no connection within {_connect_seconds(limits, seconds):g} s",
            )
        case aiohttp.ClientConnectorError() if _refused(error.os_error):
            return "refused", "connection refused: nothing listens there"
        case aiohttp.ClientConnectorError():
            return "connect_timeout", f"no connection: {error.os_error.strerror or error.os_error}"
        case TimeoutError() | asyncio.TimeoutError():
            return "read_timeout", f"connected, but no complete answer within {seconds:g} s"
        case aiohttp.ClientResponseError():
            return "garbled", f"the answer is not HTTP: {error.message}"
        case aiohttp.ClientPayloadError():
            return "disconnected", "the connection broke off in the middle of the body"
        case aiohttp.ClientConnectionError() | OSError():
            return "disconnected", f"the connection broke off: {error or type(error).__name__}"
        case zlib.error() | ValueError():
            return "garbled", f"the body cannot be unpacked: {error}"
    return "garbled", f"{type(error).__name__}: {error}"
