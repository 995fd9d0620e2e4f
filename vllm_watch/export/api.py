"""The read-only HTTP routes and the reload."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from math import isfinite, nan

from aiohttp import web

from vllm_watch.board.board import Board
from vllm_watch.board.history import SPANS
from vllm_watch.errors import WatchError
from vllm_watch.export.answers import answer, json_answer, refusal
from vllm_watch.export.auth import Auth, Guarded
from vllm_watch.export.status import Status, to_json
from vllm_watch.export.text import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    own_metrics,
    render,
    wants_openmetrics,
)
from vllm_watch.state.journal import Told
from vllm_watch.support.token_file import Caller

Ready = Callable[[], str | None]  # returns None if ready, else the reason
Reload = Callable[[str, str], Awaitable[None]]
"""Arguments: actor and source address. Raises WatchError if the configuration is refused."""
Recording = Callable[[str, float], AsyncIterator[bytes]]  # arguments: the target's name and minutes
ReadJournal = Callable[[float, int], Awaitable[Told]]
"""Arguments: the start (Unix seconds) and the maximum number of entries. Raises WatchError."""

RELOAD_SECONDS = 25.0  # to read the file and resolve names
MINUTES_MAX = 60.0
JOURNAL_ENTRIES_MAX = 2000  # about 1 KB each
_CHUNK_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"


class Api:
    """Handlers of the routes."""

    def __init__(
        self,
        board: Board,
        status: Status,
        *,
        ready: Ready,
        reload: Reload | None,
        recording: Recording | None,
        journal: ReadJournal | None,
        auth: Auth,
    ) -> None:
        self._board = board
        self._status = status
        self._ready = ready
        self._reload = reload
        self._recording = recording
        self._journal = journal
        self._reloading = Guarded(auth, "reload", self._reload_for, "any user of this host")
        self._own = own_metrics()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/metrics", self.metrics),
            web.get("/-/healthy", self.healthy),
            web.get("/-/ready", self.ready),
            web.post("/-/reload", self._reloading.handle),
            web.get("/api/v1/status", self.status),
            web.get("/api/v1/incidents", self.incidents),
            web.get("/api/v1/incidents/{id}", self.incident),
            web.get("/api/v1/history", self.history),
            web.get("/api/v1/recording", self.recording),
            web.get("/api/v1/journal", self.journal),
        ]

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        openmetrics = wants_openmetrics(request.headers.get("Accept", ""))
        body = render(self._board, self._own, openmetrics=openmetrics)
        return await answer(request, body, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE)

    async def healthy(self, request: web.Request) -> web.StreamResponse:
        return await answer(request, b"healthy\n", _TEXT)

    async def ready(self, request: web.Request) -> web.StreamResponse:
        reason = self._ready()
        if reason is None:
            web_trouble = self._board.web.because if self._board.web else None
            more = "" if web_trouble is None else f"but the web configuration: {web_trouble}\n"
            return await answer(request, f"ready\n{more}".encode(), _TEXT)
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _reload_for(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        if self._reload is None:
            return refusal(404, "There is no configuration to reload", "Start with --config FILE")
        try:
            # An interrupted reload would be applied only in part.
            async with asyncio.timeout(RELOAD_SECONDS):
                await asyncio.shield(self._reload(caller.actor, caller.source))
        except WatchError as error:
            return refusal(500, error.cause, f"{error.remedy}. The old configuration stays in use")
        except TimeoutError:
            return refusal(
                500,
                f"The reload took over {RELOAD_SECONDS:g} s",
                "See the log; it may still finish",
            )
        return await json_answer(request, '{"reloaded":true}')

    async def status(self, request: web.Request) -> web.StreamResponse:
        return await json_answer(request, self._status.whole(self._ready()))

    async def incidents(self, request: web.Request) -> web.StreamResponse:
        state = request.query.get("state")
        if state not in (None, "open", "resolved"):
            return refusal(400, f"state={state[:100]!r} is neither open nor resolved",
                           "Leave it out for both")  # fmt: skip
        return await json_answer(
            request, self._status.incidents(request.query.get("target"), state)
        )

    async def incident(self, request: web.Request) -> web.StreamResponse:
        name, debug = request.match_info["id"], request.query.get("debug") == "true"
        found = self._status.incident(name, debug=debug)
        if found is None:
            return _no_incident(name)
        return await json_answer(request, found)

    async def history(self, request: web.Request) -> web.StreamResponse:
        if (incident := request.query.get("incident")) is not None:
            found = self._status.incident_history(incident)
            if found is None:
                return _no_incident(incident)
            return await json_answer(request, found)
        target, engine = request.query.get("target", ""), request.query.get("engine")
        seconds = _number(request, "seconds", "600", SPANS[-1], "Ask for seconds=3600")
        if isinstance(seconds, web.Response):
            return seconds
        found = self._status.history(target, engine, seconds)
        if found is None:
            return _no_target(target) if engine is None else refusal(
                404, f"There is no history of engine {engine[:100]!r} of target {target[:100]!r}",
                "See /api/v1/status for the targets",
            )  # fmt: skip
        return await json_answer(request, found)

    async def recording(self, request: web.Request) -> web.StreamResponse:
        target = request.query.get("target", "")
        if target not in self._board.targets:
            return _no_target(target)
        if self._recording is None:
            return refusal(404, "The flight recorder is off", "Turn it on in the configuration")
        minutes = _number(request, "minutes", "10", MINUTES_MAX, "Ask for minutes=10")
        if isinstance(minutes, web.Response):
            return minutes
        return await _download(request, target, self._recording(target, minutes))

    async def journal(self, request: web.Request) -> web.StreamResponse:
        try:
            since_t = float(request.query.get("since", "0"))
        except ValueError:
            since_t = nan
        if not isfinite(since_t):
            return refusal(400, f"since={request.query['since'][:100]!r} is not a time",
                           "Use Unix seconds, or leave it out")  # fmt: skip
        if self._journal is None:
            return refusal(404, "There is no journal here", "Set state_dir in the configuration")
        try:
            told = await self._journal(since_t, JOURNAL_ENTRIES_MAX)
        except WatchError as error:
            return refusal(503, error.cause, error.remedy)
        return await json_answer(request, await asyncio.to_thread(to_json, told))


def _no_target(name: str) -> web.Response:
    return refusal(404, f"There is no target {name[:100]!r}", "See /api/v1/status for the targets")


def _no_incident(name: str) -> web.Response:
    cause = f"There is no incident {name[:100]!r}, or it ended too long ago"
    return refusal(404, cause, "See /api/v1/incidents for those that are known")


def _number(
    request: web.Request, key: str, usual: str, most: float, remedy: str
) -> float | web.Response:
    text = request.query.get(key, usual)
    try:
        number = float(text)
    except ValueError:
        number = nan
    if 0 < number <= most:
        return number
    cause = f"{key}={text[:100]!r} is not a number above 0 and up to {most:g}"
    return refusal(400, cause, remedy)


async def _download(
    request: web.Request, target: str, chunks: AsyncIterator[bytes]
) -> web.StreamResponse:
    name = re.sub(r"[^A-Za-z0-9._-]", "_", target)[:100]
    response = web.StreamResponse(
        headers={
            "Content-Type": "application/gzip",
            "Content-Disposition": f'attachment; filename="{name}.jsonl.gz"',
        }
    )
    try:
        while True:
            async with asyncio.timeout(_CHUNK_SECONDS):
                chunk = await anext(chunks, None)
                if chunk is None:
                    break
                if not response.prepared:
                    await response.prepare(request)
                await response.write(chunk)
    except WatchError as error:
        if not response.prepared:
            return refusal(404, error.cause, error.remedy)
        _cut_off(request)
    except TimeoutError:
        if not response.prepared:
            return refusal(503, "The recorder did not answer in time", "Ask again; see the log")
        _cut_off(request)
    if not response.prepared:
        return refusal(
            404,
            f"There is no recording of target {target!r} yet",
            "Ask again after its next scrape",
        )
    return response


def _cut_off(request: web.Request) -> None:
    """Abort the connection, so that the client does not take the download as complete."""
    if request.transport is not None:
        request.transport.abort()
