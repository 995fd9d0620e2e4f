"""Explain an unexpected response to a scrape, with a remedy."""

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.samples.observation import SCALING
from vllm_watch.sources import http
from vllm_watch.sources.http import Session
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import redact_always, redacted

# Do not mention OpenMetrics: vLLM up to 0.8.4 would always choose it, at a higher cost.
ACCEPT_TEXT = "text/plain;version=0.0.4"

_API_KEY_BYTES_MAX = 8192
_HANDSHAKE_SECONDS = 2.0
_TITLE_CHARACTERS_MAX = 60
_TITLE = re.compile(rb"<title[^>]{0,200}>([^<]{1,300})<", re.IGNORECASE)
_SCALES = b"The model is currently scaling"
"""Part of the response of vLLM 0.11 to 0.33. Source: entrypoints/serve/elastic_ep/middleware.py."""

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


async def ask(
    session: Session, url: str, limits: http.Limits, headers: dict[str, str],
    key_file: Path | None = None, *, known: bool = False,
) -> http.Answer:  # fmt: skip
    """GET /metrics, and explain a failed call. The API key is sent only after a 401 or 403.

    `known` is True if the server has answered before. If it has never answered, a disconnect causes
    a probe for TLS.
    """
    answer = await http.get(session, url, limits, headers)
    call = answer.call
    if call.status in (401, 403) and key_file is not None:
        try:
            authorized = headers | await authorization(key_file)
        except OSError as error:
            cause = f"HTTP {call.status}: API key required, but the API key file cannot be read: {error.strerror}"
            return _with_error(answer, cause)
        answer = await http.get(session, url, limits, authorized)
        if answer.call.status in (401, 403):
            return _with_error(answer, f"HTTP {answer.call.status}: the server refused the key in scrape.api_key_file")  # fmt: skip
        call = answer.call
    broke_off = call.outcome == "disconnected" and call.status is None
    if broke_off and not known and await _speaks_tls(url):
        cause = "the server speaks TLS, but its URL is plain HTTP: write https:// in its URL"
        answer.call = replace(call, outcome="tls", error=cause)
        return answer
    return answer if call.outcome == "ok" else _with_error(answer, _explain(answer) or call.error)


def page(content_type: str, body: bytes) -> str | None:
    """Return an error for an HTML page, else None."""
    if "html" not in content_type and not body[:200].lstrip().lower().startswith((b"<!doctype", b"<html")):  # fmt: skip
        return None
    found = _TITLE.search(body[:65536])
    text = found[1].decode(errors="replace").strip() if found else ""
    title = f" titled '{text[:_TITLE_CHARACTERS_MAX]}'" if text else ""
    return redacted(f"an HTML page{title} was sent, not metrics: a proxy, or another site than vLLM")  # fmt: skip


async def authorization(key_file: Path | None) -> dict[str, str]:
    """Return the header with the key; none without a file. Raises OSError."""
    if key_file is None:
        return {}
    return {"Authorization": f"Bearer {await asyncio.to_thread(read_key, key_file)}"}


def read_key(path: Path) -> str:
    """Read the key, which may change while we run. Raises OSError."""
    body = regular_file.read(path, _API_KEY_BYTES_MAX, if_exposed="warned")
    key = body.decode(errors="replace").strip()
    redact_always(key)
    return key


def _with_error(answer: http.Answer, text: str | None) -> http.Answer:
    answer.call = replace(answer.call, error=None if text is None else redacted(text))
    return answer


def _explain(answer: http.Answer) -> str | None:
    call, status = answer.call, answer.call.status
    if status in (401, 403):
        return f"HTTP {status}: API key required: put it in a file and set scrape.api_key_file"
    if status == 503 and _SCALES in answer.body:  # noqa: PLR2004
        return SCALING
    if status is not None and 300 <= status < 400:  # noqa: PLR2004
        location = answer.headers.get("location")
        return f"HTTP {status}: it redirects to {location}: if vLLM is there, use that URL" if location else None  # fmt: skip
    if status == 404:  # noqa: PLR2004
        path = urlsplit(answer.url).path
        return f"HTTP 404: nothing at {path}: wrong server, or wrong path in the URL"
    if call.outcome == "tls" and any(word in (call.error or "").upper().replace(" ", "_") for word in _NO_TLS):  # fmt: skip
        return "the server speaks plain HTTP, but its URL is https: write http:// in its URL"
    return None


async def _speaks_tls(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # nothing is sent, so no trust is needed
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=context)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_HANDSHAKE_SECONDS):
            await writer.wait_closed()
    return True
