"""Restarts by asking somebody else over HTTP: a signed POST of JSON.

Sent again, with the same idempotency key, is only what surely did nothing: a connection that was never made,
and the answers 429 and 503. Whatever was sent and not answered may have acted.
Runbook: docs/hooks/webhook.md.
"""

import asyncio
import hashlib
import hmac
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import aiohttp

from vllm_watch import __version__
from vllm_watch.actions.hooks import base
from vllm_watch.errors import HookError
from vllm_watch.redaction import never_show, redacted
from vllm_watch.settings.hooks import WebhookHook

CONNECT_SECONDS = 10.0  # three SYNs; who does not answer these is away
WAIT_SECONDS_FIRST = 0.5  # twice as long each time: a receiver that restarts is back in seconds
WAIT_SECONDS_MAX = 30.0
"""The longest wait between two tries, whatever Retry-After asks for: an attempt holds a lock meanwhile."""
REPLAY_SECONDS = 300
"""How old a timestamp receivers are told to accept: clocks differ, and a queue holds a request a while."""
_SECRET_BYTES_MAX = 4096
_SAID_BYTES_MAX = 500
_TRY_AGAIN = (429, 503)


@dataclass(frozen=True, slots=True)
class _Try:
    outcome: str
    text: str
    again_seconds: float | None = (
        None  # None: it is not to be tried again; else at least so much later
    )


class Hook:
    """Posts what happened, and takes the status of the answer for the outcome."""

    def __init__(self, settings: WebhookHook, tools: base.Tools) -> None:
        self._settings = settings
        self._tools = tools
        self.timeout_seconds = settings.timeout_seconds
        self._where = _where(settings.url)

    async def refusal(self, call: base.HookCall) -> str | None:
        try:
            self._secret()
        except HookError as error:
            return error.cause
        return None

    async def restart(self, call: base.HookCall) -> base.HookResult:
        deadline = asyncio.get_running_loop().time() + self._settings.timeout_seconds
        body = json.dumps(call.payload()).encode()
        try:
            secret = self._secret()
        except HookError as error:
            return base.HookResult(outcome=base.FAILED, text=error.cause)
        tried = _Try(base.FAILED, "nothing was sent")
        for number in range(self._settings.retries + 1):
            left = deadline - asyncio.get_running_loop().time()
            tried = await self._post(body, self._headers(call, secret, body), left)
            wait = max(
                tried.again_seconds or 0, min(WAIT_SECONDS_FIRST * 2**number, WAIT_SECONDS_MAX)
            )
            left = deadline - asyncio.get_running_loop().time()
            if tried.again_seconds is None or number == self._settings.retries or wait >= left:
                break
            await asyncio.sleep(wait)
        return base.HookResult(outcome=tried.outcome, text=tried.text)

    async def rehearse(self, call: base.HookCall) -> list[base.Finding]:
        again = "whether the server is started again is the receiver's matter: ask whose it is"
        return [self._signed(), await self._reachable(), base.Finding(ok=True, text=again)]

    def _secret(self) -> bytes | None:
        file = self._settings.secret_file
        if file is None:
            return None
        try:
            with file.open("rb") as opened:
                secret = opened.read(_SECRET_BYTES_MAX).strip()
        except OSError as error:
            cause = f"secret_file cannot be read: {error.strerror}"
            raise HookError(cause, "name a file that vllm-watch may read") from None
        if not secret:
            raise HookError("secret_file is empty", "write the key into it")
        never_show(secret.decode(errors="replace"))
        return secret

    def _headers(self, call: base.HookCall, secret: bytes | None, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._tools.unix_time()))
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"vllm-watch/{__version__}",
            "Idempotency-Key": call.attempt_id,
            "X-Vllm-Watch-Attempt": call.attempt_id,
            "X-Vllm-Watch-Timestamp": timestamp,
        }
        if secret is not None:
            signed = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256)
            headers["X-Vllm-Watch-Signature"] = f"sha256={signed.hexdigest()}"
        return headers

    async def _post(self, body: bytes, headers: Mapping[str, str], seconds: float) -> _Try:
        # The connection's own limit ends first, so that one at the whole limit means: it was sent.
        connect = min(CONNECT_SECONDS, seconds / 2)
        timeout = aiohttp.ClientTimeout(total=seconds, connect=connect, sock_connect=connect)
        try:
            async with (
                self._tools.session(None) as session,
                session.post(
                    self._settings.url, data=body, headers=headers, timeout=timeout,
                    allow_redirects=False,
                ) as response,
            ):  # fmt: skip
                return self._judge(response, await _said(response))
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
            why = getattr(error, "certificate_error", error)
            return _Try(base.FAILED, f"{self._where} is not trusted: {redacted(str(why))}")
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            text = f"{self._where} cannot be reached: {redacted(str(error))}"
            return _Try(base.FAILED, text, again_seconds=0)
        except TimeoutError:
            text = f"{self._where} was asked and has not answered within {seconds:.0f} s"
            return _Try(base.UNCERTAIN, text)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            said = redacted(str(error) or type(error).__name__)[:_SAID_BYTES_MAX]
            return _Try(base.UNCERTAIN, f"{self._where} was asked; its answer was cut off: {said}")

    def _judge(self, response: aiohttp.ClientResponse, said: str) -> _Try:
        status = response.status
        text = f"{self._where} answered {status}{said}"
        if 200 <= status < 300:  # noqa: PLR2004
            return _Try(base.DONE, text)
        if status in _TRY_AGAIN:
            after = _seconds(response.headers.get("Retry-After", ""), self._tools.unix_time())
            return _Try(base.FAILED, text, again_seconds=min(after, WAIT_SECONDS_MAX))
        if 300 <= status < 400:  # noqa: PLR2004
            return _Try(base.REFUSED, f"{text}: redirects are not followed, set url to where it is")
        if 400 <= status < 500:  # noqa: PLR2004
            return _Try(base.REFUSED, text)
        return _Try(base.UNCERTAIN, text)

    def _signed(self) -> base.Finding:
        try:
            secret = self._secret()
        except HookError as error:
            return base.Finding(ok=False, text=error.cause, remedy=error.remedy)
        if secret is not None:
            return base.Finding(ok=True, text="requests are signed")
        remedy = "set secret_file, and verify the signature there"
        return base.Finding(ok=True, text="requests are not signed", remedy=remedy)

    async def _reachable(self) -> base.Finding:
        """Connect, with TLS where the URL says so, and send nothing: any request might restart."""
        parts = urlsplit(self._settings.url)
        secure = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
        except (OSError, TimeoutError) as error:
            why = redacted(str(error)) or f"no answer within {CONNECT_SECONDS:g} s"
            text = f"{self._where} cannot be reached: {why}"
            return base.Finding(
                ok=False, text=text, remedy="check url, its name and its certificate"
            )
        writer.transport.abort()
        text = f"{self._where} can be reached; nothing was sent, since that may restart the server"
        return base.Finding(ok=True, text=text)


async def _said(response: aiohttp.ClientResponse) -> str:
    """Return the beginning of what an answer that is no success says; its end is not waited for."""
    if response.ok and response.status < 300:  # noqa: PLR2004
        return ""
    try:
        async with asyncio.timeout(1):
            body = await response.content.read(_SAID_BYTES_MAX)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""
    text = " ".join(redacted(body.decode(errors="replace")).split())
    return f": {text}" if text.isprintable() and text else ""


def _seconds(retry_after: str, now: float) -> float:
    """Read a Retry-After, seconds or a date; what cannot be read asks for nothing."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.fromtimestamp(now, UTC)).total_seconds())


def _where(url: str) -> str:
    parts = urlsplit(url)  # the query may hold a token, and so may the path
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
