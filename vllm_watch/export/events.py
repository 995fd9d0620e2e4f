"""/api/v1/events: changes for open pages as server-sent events.

After `hello`, the page reads /api/v1/status and /api/v1/incidents. Changes are sent as `target`,
`gpus`, `incident` and `gone` (a removed target). `beat` contains clock and health. It is sent at
least every four seconds.
"""

import asyncio
import time

from aiohttp import web

from vllm_watch.board.board import Board, TooManyListenersError, Updates
from vllm_watch.export.answers import refusal
from vllm_watch.export.status import Status, to_json
from vllm_watch.support.waiting import happens

BATCH_SECONDS = 1.0  # limits the work per page
URGENT_SECONDS = 0.1  # groups many incidents into few batches
BEAT_SECONDS = 4.0  # the page allows 10 s without data
WRITE_SECONDS = 10.0  # slower clients are disconnected
_EVENTS_PER_WRITE = 32  # about 64 KB


async def handle(board: Board, status: Status, request: web.Request) -> web.StreamResponse:
    """Serve the stream to one page."""
    try:
        updates = board.listeners.add()
    except TooManyListenersError as error:
        return refusal(503, error.cause, error.remedy)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    )
    try:
        await response.prepare(request)
        await _stream(status, response, updates)
    except ConnectionError:
        pass
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    finally:
        board.listeners.remove(updates)
    return response


async def _stream(status: Status, response: web.StreamResponse, updates: Updates) -> None:
    await _write(response, f"retry: 2000\n{_event('hello', to_json(status.watcher()))}")
    beaten = time.monotonic()
    while not updates.closed.is_set():
        if time.monotonic() - beaten >= BEAT_SECONDS:
            beaten = time.monotonic()
            await _write(response, _event("beat", to_json(status.watcher())))
        try:
            async with asyncio.timeout(BEAT_SECONDS - (time.monotonic() - beaten)):
                await updates.wait()
        except TimeoutError:
            continue
        await _batch(status, response, updates)
        await _pause(updates)


async def _batch(status: Status, response: web.StreamResponse, updates: Updates) -> None:
    changes = updates.take()
    head = [_event("gone", to_json({"name": name})) for name in changes["gone"]]
    if changes["gpus"]:
        head.append(_event("gpus", status.gpus()))
    if head:
        await _write(response, "".join(head))
    for kind, names, text_of in (
        ("incident", changes["incidents"], status.incident),
        ("target", changes["targets"], status.target),
    ):
        for start in range(0, len(names), _EVENTS_PER_WRITE):
            texts = map(text_of, names[start : start + _EVENTS_PER_WRITE])
            await _write(response, "".join(_event(kind, text) for text in texts if text))


async def _pause(updates: Updates) -> None:
    rest_seconds = BATCH_SECONDS - URGENT_SECONDS
    for event, seconds in ((updates.closed, URGENT_SECONDS), (updates.urgent, rest_seconds)):
        await happens(event, seconds)


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


async def _write(response: web.StreamResponse, text: str) -> None:
    async with asyncio.timeout(WRITE_SECONDS):
        await response.write(text.encode())
