"""One bounded HTTP call, and how it ended: the only way in which the watcher talks to an engine."""

import errno
import time
import zlib
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

from vllm_watch.samples.observation import Call
from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_failures import (
    BrokenOffError,
    NotAskedError,
    NotConnectedError,
    NotHttpError,
    NotUnpackedError,
    OutOfTimeError,
    TooLargeError,
)
from vllm_watch.sources.http_response import OK
from vllm_watch.sources.http_session import Bounds, Session

CONNECT_SHARE = 0.75
"""Of a call's time, so much at most is spent on the connection. Where both ran out at the same moment, who
was never reached would pass for one that takes connections and hangs, and a restart would be advised."""

REDIRECTS_MAX = 2
"""vLLM 0.3.3 to 0.4.1 redirects /metrics to /metrics/; nothing needs more than one and a spare."""

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_ERROR_CHARS_MAX = 300


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
    headers: dict[str, str] = field(default_factory=dict)  # by names in lower case
    arrived_monotonic_s: float = 0.0  # when its last byte came, or that it failed was known
    late_s: float = 0.0  # how much later than due our own clock ended it


def new_session() -> Session:
    """A session that keeps connections alive, without cookies and without the proxies of our environment."""
    return Session()


async def get(session: Session, url: str, limits: Limits, headers: dict[str, str]) -> Answer:
    """GET `url`. Never raises for anything that the other side or the network does."""
    started = time.monotonic()
    deadline = started + limits.timeout_seconds
    answer = await _fairly(session, url, limits, headers, limits.timeout_seconds)
    for _ in range(REDIRECTS_MAX):
        location = answer.headers.get("location")
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
        latency_s=answer.arrived_monotonic_s - started,
    )
    answer.url = url
    return answer


async def post(
    session: Session, url: str, limits: Limits, headers: dict[str, str], body: bytes
) -> Answer:
    """POST `body`, once; redirects are not followed. Never raises for anything that the other side does.

    An answer other than 200 keeps the beginning of its body, which says what was wrong.
    """
    started = time.monotonic()
    answer = await _once(session, "POST", url, limits, headers, limits.timeout_seconds, body)
    if own_trouble.is_late(answer.late_s, limits.timeout_seconds):
        answer = _held_up(answer.late_s)
    answer.call = replace(answer.call, latency_s=answer.arrived_monotonic_s - started)
    answer.url = url
    return answer


async def _fairly(
    session: Session,
    url: str,
    limits: Limits,
    headers: dict[str, str],
    seconds: float,
) -> Answer:
    """GET, once more where we did not run while the answer was due: it may have come in time."""
    late_s = 0.0
    for _ in range(2):
        answer = await _once(session, "GET", url, limits, headers, seconds)
        late_s = answer.late_s
        if not own_trouble.is_late(late_s, seconds):
            return answer
    return _held_up(late_s)


def _connect_seconds(limits: Limits, seconds: float) -> float:
    return min(limits.connect_timeout_seconds, CONNECT_SHARE * seconds)


def _held_up(late_s: float) -> Answer:
    call = Call(outcome=own_trouble.OUTCOME, error=own_trouble.held_up(late_s))
    return Answer(call, arrived_monotonic_s=time.monotonic())


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
    session: Session,
    method: str,
    url: str,
    limits: Limits,
    headers: dict[str, str],
    seconds: float,
    body: bytes | None = None,
) -> Answer:
    bounds = Bounds(_connect_seconds(limits, seconds), seconds, limits.body_bytes_max)
    try:
        status, said, body, arrived_s = await session.ask(method, url, headers, body, bounds)
    except _FAILURES as error:
        call = _failed(error, bounds)
        late_s = error.late_s if isinstance(error, OutOfTimeError) else 0.0
        return Answer(call, arrived_monotonic_s=time.monotonic(), late_s=late_s)
    if status != OK:
        call = Call(outcome="http", status=status, error=f"HTTP {status}")
        return Answer(call, body, headers=said, arrived_monotonic_s=arrived_s)
    content_type = said.get("content-type", "")
    return Answer(
        Call(outcome="ok", status=status), body, content_type,
        headers=said, arrived_monotonic_s=arrived_s,
    )  # fmt: skip


def _failed(error: Exception, bounds: Bounds) -> Call:
    ours = own_trouble.of_error(error)
    outcome, said = (own_trouble.OUTCOME, ours) if ours else _outcome(error, bounds)
    # A body is only begun where the status was 200.
    status = OK if isinstance(error, TooLargeError | NotUnpackedError) else None
    return Call(outcome=outcome, status=status, error=said[:_ERROR_CHARS_MAX])


_FAILURES = (
    NotAskedError, NotConnectedError, OutOfTimeError, NotHttpError, BrokenOffError, TooLargeError, NotUnpackedError,
    OSError, ValueError, zlib.error, MemoryError,
)  # fmt: skip


def _outcome(error: Exception, bounds: Bounds) -> tuple[str, str]:  # noqa: C901 - a table
    match error:
        case NotConnectedError(step="dns"):
            return "dns", f"the host name does not resolve: {error.os_error}"
        case NotConnectedError(step="tls"):
            return "tls", f"the TLS handshake failed: {error.os_error}"
        case NotConnectedError() if error.os_error.errno == errno.ECONNREFUSED:
            return "refused", "connection refused: nothing listens there"
        case NotConnectedError():
            return "connect_timeout", f"no connection: {error.os_error.strerror or error.os_error}"
        case OutOfTimeError(connected=False):
            return "connect_timeout", f"no connection within {bounds.connect_seconds:g} s"
        case OutOfTimeError():
            return "read_timeout", f"connected, but no complete answer within {bounds.seconds:g} s"
        case NotHttpError():
            return "garbled", f"the answer is not HTTP: {error}"
        case BrokenOffError(in_body=True):
            return "disconnected", "the connection broke off in the middle of the body"
        case BrokenOffError() | OSError():
            return "disconnected", f"the connection broke off: {error}"
        case TooLargeError():
            return "too_large", str(error)
        case NotAskedError() | NotUnpackedError():
            return "garbled", str(error)
        case _:
            return "garbled", f"the body cannot be unpacked: {error}"
