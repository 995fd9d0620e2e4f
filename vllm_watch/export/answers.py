"""Responses: headers, write timeout, compression, JSON errors."""

import asyncio
import gzip

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.typedefs import Handler

from vllm_watch.export.status import to_json

WRITE_SECONDS = 30.0  # Prometheus times out after 10 s by default
BODY_BYTES_MAX = 4096  # enough for short JSON
BODY_SECONDS = 5.0
LARGE_BODIES_PATH = "/api/v1/alertmanager"  # receives groups of alerts
_GZIP_BYTES_MIN = 1024  # smaller bodies fit one packet
_GZIP_INLINE_BYTES_MAX = 256 * 1024  # larger bodies would block the loop for over 2 ms

_SERVED = (
    "The paths are /, /metrics, /-/healthy, /-/ready, POST /-/reload, "
    "and status, incidents, history, journal, events and recording under /api/v1/; for probes /gate/liveness "
    "and /gate/readiness"
)
HEADERS = {
    # Inline scripts are forbidden, so that a model's name cannot run as code.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TimedResponse(web.Response):
    """Closes the connection if the client takes longer than WRITE_SECONDS to read."""

    _transport: asyncio.Transport | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        self._transport = request.transport
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._give_up)
        try:
            await super().write_eof(data)
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def answer(
    request: web.Request, body: bytes, content_type: str, **headers: str
) -> web.Response:
    """Send the body, compressed if the client accepts gzip."""
    sent = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding", **headers}
    if len(body) >= _GZIP_BYTES_MIN and _accepts_gzip(request.headers.get("Accept-Encoding", "")):
        sent["Content-Encoding"] = "gzip"
        # Level 1 is three times as fast as level 6, and the result is about as small.
        if len(body) > _GZIP_INLINE_BYTES_MAX:
            body = await asyncio.to_thread(gzip.compress, body, 1)
        else:
            body = gzip.compress(body, 1)
    return TimedResponse(body=body, headers=sent)


async def json_answer(request: web.Request, text: str) -> web.Response:
    """Send serialized JSON."""
    return await answer(request, text.encode(), "application/json")


def refusal(status: int, error: str, remedy: str) -> web.Response:
    """Return an error response with cause and remedy as JSON."""
    body = to_json({"error": error, "remedy": remedy}).encode()
    return TimedResponse(status=status, body=body, content_type="application/json")


def _accepts_gzip(header: str) -> bool:
    for item in header.split(","):
        coding, _, parameters = item.strip().partition(";")
        if coding.strip() == "gzip":
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer routing errors as JSON."""
    try:
        return await handler(request)
    except (ConnectionError, web.RequestPayloadError):
        return refusal(400, "The body is incomplete", "Send it again")
    except web.HTTPException as error:
        response = refusal(
            error.status, f"{request.method} {request.path}: {error.reason}", _SERVED
        )
        if allow := error.headers.get("Allow"):
            response.headers["Allow"] = allow
        return response


@web.middleware
async def small_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the body within BODY_SECONDS. Alertmanager's bodies are exempt."""
    if request.can_read_body and request.path != LARGE_BODIES_PATH:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await request.read()
        except TimeoutError:
            return refusal(408, f"The body did not arrive within {BODY_SECONDS:g} s", "Send none")
    return await handler(request)
