"""What answered where vLLM's metrics were expected, in a sentence that says what to change.

The one place of these sentences: a failed call carries them (`Call.error`) to the log, the page, `top`, `read` and
`check-config`. Whose metrics a body holds is said in `products.py`.
"""

import asyncio
import re
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from vllm_watch.samples.observation import SCALING, Call
from vllm_watch.sources import http
from vllm_watch.sources.http_session import Session
from vllm_watch.support import regular_file
from vllm_watch.support.redaction import never_show, redacted

# Only this: up to vLLM 0.8.4 a word of OpenMetrics brings OpenMetrics, which costs more to write.
ACCEPT_TEXT = "text/plain;version=0.0.4"

_API_KEY_BYTES_MAX = 8192
_HANDSHAKE_SECONDS = 2.0
_TITLE_CHARACTERS_MAX = 60
_TITLE = re.compile(rb"<title[^>]{0,200}>([^<]{1,300})<", re.IGNORECASE)
_SCALES = b"The model is currently scaling"
"""Source: vLLM, entrypoints/serve/elastic_ep/middleware.py (0.11 to 0.33)."""

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


async def ask(
    session: Session, url: str, limits: http.Limits, headers: dict[str, str],
    key_file: Path | None = None, *, known: bool = False,
) -> http.Answer:  # fmt: skip
    """GET /metrics; a call that failed says what answered. The key is shown only to who asks for one.

    `known`: it has answered before, so one that breaks off is not asked whether it speaks TLS.
    """
    answer = await http.get(session, url, limits, headers)
    call = answer.call
    if call.status in (401, 403) and key_file is not None:
        try:
            key = await asyncio.to_thread(read_key, key_file)
        except OSError as error:
            said = f"HTTP {call.status}: API key required, and the API key file cannot be read: {error.strerror}"
            return _saying(answer, said)
        answer = await http.get(session, url, limits, headers | {"Authorization": f"Bearer {key}"})
        if answer.call.status in (401, 403):
            return _saying(answer, f"HTTP {answer.call.status}: it refuses the key of scrape.api_key_file")  # fmt: skip
        call = answer.call
    broke_off = call.outcome == "disconnected" and call.status is None
    if broke_off and not known and await _speaks_tls(url):
        said = "it speaks TLS, and was asked in plain HTTP: write https:// in its URL"
        return with_call(answer, replace(call, outcome="tls", error=said))
    return answer if call.outcome == "ok" else _saying(answer, _in_words(answer) or call.error)


def page(content_type: str, body: bytes) -> str | None:
    """What a body is that is no metrics, where that can be told: a page of HTML, with its title."""
    if "html" not in content_type and not body[:200].lstrip().lower().startswith((b"<!doctype", b"<html")):  # fmt: skip
        return None
    found = _TITLE.search(body[:65536])
    said = found[1].decode(errors="replace").strip() if found else ""
    title = f" titled '{said[:_TITLE_CHARACTERS_MAX]}'" if said else ""
    return redacted(f"an HTML page{title} was sent, not metrics: a proxy, or another site than vLLM")  # fmt: skip


def read_key(path: Path) -> str:
    """Read a bearer key; it is in a file so that it can be changed while we run. Raises OSError."""
    body = regular_file.read(path, _API_KEY_BYTES_MAX, if_exposed="warned")
    key = body.decode(errors="replace").strip()
    never_show(key)
    return key


def with_call(answer: http.Answer, call: Call) -> http.Answer:
    """The answer, as a call that ended otherwise."""
    answer.call = call
    return answer


def _saying(answer: http.Answer, text: str | None) -> http.Answer:
    return with_call(answer, replace(answer.call, error=None if text is None else redacted(text)))  # fmt: skip


def _in_words(answer: http.Answer) -> str | None:
    call, status = answer.call, answer.call.status
    if status in (401, 403):
        return f"HTTP {status}: API key required: put it in a file and set scrape.api_key_file"
    if status == 503 and _SCALES in answer.body:  # noqa: PLR2004
        return SCALING
    if status is not None and 300 <= status < 400:  # noqa: PLR2004 - the redirects
        where = answer.headers.get("location")
        return f"HTTP {status}: it redirects to {where}: if vLLM is there, name that" if where else None  # fmt: skip
    if status == 404:  # noqa: PLR2004
        path = urlsplit(answer.url).path
        return f"HTTP 404: nothing at {path}: wrong server, or wrong path in the URL"
    if call.outcome == "tls" and any(word in (call.error or "").upper().replace(" ", "_") for word in _NO_TLS):  # fmt: skip
        return "it speaks plain HTTP, and was asked in TLS: write http:// in its URL"
    return None


async def _speaks_tls(url: str) -> bool:
    """Does a server that ended our plain connection without a word take a TLS handshake?"""
    parts = urlsplit(url)
    if parts.scheme != "http":
        return False
    context = ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT
    )  # nothing is said over it, so nobody is trusted
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
