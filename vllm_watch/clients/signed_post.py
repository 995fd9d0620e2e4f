"""Send JSON in a signed POST, without retries."""

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from vllm_watch import __version__
from vllm_watch.clients import http_answer
from vllm_watch.errors import WatchError
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import excerpt, redact_always, redacted

CONNECT_SECONDS = 10.0  # enough for three TCP SYNs
REPLAY_SECONDS = 300
"""Receivers should accept timestamps up to this age, because clocks differ and queues delay requests."""
_SECRET_BYTES_MAX = 4096
_EXCERPT_BYTES_MAX = 500
_EXCERPT_SECONDS = 1.0

ANSWERED, UNTRUSTED, NOT_REACHED, NO_ANSWER, CUT_OFF = (
    "answered", "untrusted", "not_reached", "no_answer", "cut_off",
)  # fmt: skip
"""Outcomes of a POST. If the outcome is `untrusted` or `not_reached`, nothing was sent."""

NewSession = Callable[[aiohttp.BaseConnector | None], aiohttp.ClientSession]


@dataclass(frozen=True, slots=True)
class Posted:
    """The outcome of one POST."""

    end: str
    text: str  # without secrets
    status: int | None = None
    retry_after_seconds: float = 0.0  # as requested by the receiver


def new_session(connector: aiohttp.BaseConnector | None = None) -> aiohttp.ClientSession:
    """Return a session without cookies, and without proxies and passwords from the environment."""
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


def read_secret(file: Path, key: str) -> bytes:
    """Return the secret. Raises a WatchError that names the setting `key`."""
    try:
        secret = regular_file.read(file, _SECRET_BYTES_MAX, if_exposed="warned").strip()
    except OSError as error:
        cause = f"{key} cannot be read: {error.strerror}"
        raise WatchError(cause, "name a file that vllm-watch may read") from None
    if not secret:
        raise WatchError(f"{key} is empty", "write the key into it")
    redact_always(secret.decode(errors="replace"))
    return secret


def headers(key: str, secret: bytes | None, body: bytes, unix_time: float) -> dict[str, str]:
    """Return the headers, signed if there is a secret. `key` is the idempotency key."""
    timestamp = str(int(unix_time))
    found = {
        "Content-Type": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": f"vllm-watch/{__version__}",
        "Idempotency-Key": key,
        "X-Vllm-Watch-Timestamp": timestamp,
    }
    if secret is not None:
        signed = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256)
        found["X-Vllm-Watch-Signature"] = f"sha256={signed.hexdigest()}"
    return found


def origin(url: str) -> str:
    """Return the URL without path and query, which may hold a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


async def post(
    session: NewSession, url: str, body: bytes, head: Mapping[str, str], seconds: float,
    unix_time: float,
) -> Posted:  # fmt: skip
    """Send the request once. Raises only CancelledError."""
    place = origin(url)
    # The connect timeout is shorter, so if the total timeout expires, the request was sent.
    connect = min(CONNECT_SECONDS, seconds / 2)
    timeout = aiohttp.ClientTimeout(total=seconds, connect=connect, sock_connect=connect)
    try:
        async with (
            session(None) as opened,
            opened.post(
                url, data=body, headers=head, timeout=timeout, allow_redirects=False
            ) as response,
        ):
            after = retry_after_seconds(response.headers.get("Retry-After", ""), unix_time)
            text = f"{place} answered {response.status}{await _excerpt(response)}"
            return Posted(ANSWERED, text, response.status, after)
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
        why = getattr(error, "certificate_error", error)
        return Posted(UNTRUSTED, f"{place} is not trusted: {redacted(str(why))}")
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        return Posted(NOT_REACHED, f"{place} cannot be reached: {redacted(str(error))}")
    except TimeoutError:
        text = f"the request was sent to {place}, but not answered within {seconds:.0f} s"
        return Posted(NO_ANSWER, text)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = excerpt(str(error) or type(error).__name__, _EXCERPT_BYTES_MAX)
        return Posted(
            CUT_OFF, f"the request was sent to {place}, but the answer was cut off: {cause}"
        )


async def reachable(url: str) -> str | None:
    """Connect without sending a request. Return the error, or None."""
    parts = urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
    except (OSError, TimeoutError) as error:
        why = redacted(str(error)) or f"no answer within {CONNECT_SECONDS:g} s"
        return f"{origin(url)} cannot be reached: {why}"
    writer.transport.abort()
    return None


async def _excerpt(response: aiohttp.ClientResponse) -> str:
    if response.ok and response.status < 300:  # noqa: PLR2004
        return ""
    try:
        body = await http_answer.beginning(response, _EXCERPT_BYTES_MAX, _EXCERPT_SECONDS)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""
    text = " ".join(redacted(body.decode(errors="replace")).split())
    return f": {text}" if text.isprintable() and text else ""


def retry_after_seconds(header: str, now: float) -> float:
    """Return the seconds of a Retry-After header, or 0 if it is invalid."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.fromtimestamp(now, UTC)).total_seconds())
