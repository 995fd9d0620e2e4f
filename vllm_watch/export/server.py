"""The HTTP server."""

import asyncio
import errno
import hashlib
import logging
import socket
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.board.board import Board
from vllm_watch.errors import ServeError
from vllm_watch.export import events, gate, operator_api, page_files
from vllm_watch.export import public as public_page
from vllm_watch.export.answers import BODY_BYTES_MAX, HEADERS, answer, errors_as_json, small_bodies
from vllm_watch.export.api import Api, ReadJournal, Ready, Recording, Reload
from vllm_watch.export.auth import Auth
from vllm_watch.export.callers import only_from
from vllm_watch.export.gate import Gatekeeper
from vllm_watch.export.listener import Listener
from vllm_watch.export.operator_api import Operators, TestNotifier
from vllm_watch.export.passwords import signed_in
from vllm_watch.export.status import Status
from vllm_watch.export.web_config import WebConfig
from vllm_watch.settings.stages import TokenSettings

KEEP_ALIVE_SECONDS = 75.0  # longer than usual scrape intervals
HEAD_FIELDS_MAX, HEAD_LINE_BYTES_MAX = 64, 4 << 10
"""Maximum header fields, and bytes per field. Browsers behind two proxies send 30 fields of up to 2 kB."""

SHUTDOWN_SECONDS = 2.0  # then slow clients are abandoned


class _CallersFaults(logging.Filter):
    """Drops tracebacks of malformed requests, so that a port scan cannot fill a disk."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger("vllm_watch.export")
_log.addFilter(_CallersFaults())


class Server:
    """Serves one board. `names` are additional Host names."""

    def __init__(
        self,
        board: Board,
        *,
        host: str,
        port: int,
        ready: Ready,
        reload: Reload | None = None,
        recording: Recording | None = None,
        journal: ReadJournal | None = None,
        names: Collection[str] = (),
        operators: Operators | None = None,
        test_notifier: TestNotifier | None = None,
        gatekeeper: Gatekeeper | None = None,
        tokens: Sequence[TokenSettings] = (),
        web_config: Path | None = None,
        public: bool = False,
    ) -> None:
        self._board = board
        self._host = host
        self._names = names
        self.port = port
        self._web = WebConfig(web_config)
        board.web = self._web.health
        board.takes_tokens = bool(tokens)
        status = Status(board)
        auth = Auth(tokens)
        api = Api(
            board, status, ready=ready, reload=reload, recording=recording, journal=journal, auth=auth,
        )  # fmt: skip
        self.routes: tuple[web.RouteDef, ...] = (
            *api.routes(), *assets(), web.get("/api/v1/events", partial(events.handle, board, status)),
            *operator_api.routes(auth, operators, test_notifier),
            *(public_page.routes(board) if public else ()),
            *(() if gatekeeper is None else gate.routes(gatekeeper, board.targets)),
        )  # fmt: skip
        self._bound: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None
        self._keeping_up: asyncio.Task[None] | None = None

    @property
    def scheme(self) -> str:
        return "http" if self._web.context is None else "https"

    @property
    def connections(self) -> int:
        return 0 if self._listener is None else len(self._listener)

    def take(self) -> None:
        """Bind the port. Raises ServeError or ConfigError."""
        self._web.open()
        self._bound = bind(self._host, self.port)
        self.port = self._bound.getsockname()[1]

    async def start(self) -> None:
        if self._bound is None:
            self.take()
        assert self._bound is not None  # noqa: S101
        app = web.Application(middlewares=self._middlewares(), client_max_size=BODY_BYTES_MAX)
        app.on_response_prepare.append(self._add_headers)
        app.on_shutdown.append(self._close_listeners)
        app.add_routes(self.routes)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_log, handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS, lingering_time=1.0,
            max_line_size=HEAD_LINE_BYTES_MAX, max_field_size=HEAD_LINE_BYTES_MAX, max_headers=HEAD_FIELDS_MAX,
        )  # fmt: skip
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101
        self._listener = Listener(self._bound, self._runner.server, lambda: self._web.context)
        self._listener.start()
        self._keeping_up = asyncio.create_task(self._web.keep_up(), name="web configuration")

    async def stop(self) -> None:
        if self._keeping_up is not None:
            self._keeping_up.cancel()
            await asyncio.gather(self._keeping_up, return_exceptions=True)
        if self._listener is not None:
            await self._listener.stop()
        elif self._bound is not None:
            self._bound.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _middlewares(self) -> list[Middleware]:
        @web.middleware
        async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
            assert self._listener is not None  # noqa: S101
            self._listener.began(request.protocol)
            try:
                return await handler(request)
            finally:
                self._listener.ended(request.protocol)

        ours = only_from(self._host, self._names, lambda: self.port)
        return [counted, errors_as_json, ours, signed_in(self._web), small_bodies]

    async def _add_headers(self, _: web.Request, response: web.StreamResponse) -> None:
        for name, value in (HEADERS | self._web.settings.http_server_config.headers).items():
            response.headers.setdefault(name, value)

    async def _close_listeners(self, _: web.Application) -> None:
        self._board.listeners.close()


BACKLOG = 512

_REMEDIES = {
    errno.EADDRINUSE: "Stop the process that listens there, or choose another with --listen HOST:PORT",
    errno.EACCES: "Choose a port of 1024 or above with --listen HOST:PORT",
}
_OTHERWISE = "Give an address of this machine with --listen HOST:PORT"


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ServeError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot(host, port, error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # fails if another process listens there
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _cannot(host, port, error) from error
    return bound


def _cannot(host: str, port: int, error: OSError) -> ServeError:
    remedy = _REMEDIES.get(error.errno or 0, _OTHERWISE)
    return ServeError(f"Cannot listen on {host}:{port}: {error.strerror}", remedy)


def assets() -> list[web.RouteDef]:
    """Return the routes `/`, `/page/NAME` and `/runbooks/NAME`."""
    files: dict[str, tuple[bytes, str, str]] = {}  # content, type, ETag
    for folder in ("page", "runbooks"):
        for name, content in page_files.contents(folder).items():
            stem, _, ending = name.rpartition(".")
            tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            path = f"/{folder}/{stem if folder == 'runbooks' else name}"
            files[path] = content, page_files.TYPES[ending], tag
    files["/"] = files["/page/index.html"]

    async def send(request: web.Request) -> web.StreamResponse:
        if request.path not in files:
            raise web.HTTPNotFound
        content, kind, tag = files[request.path]
        # The browser asks again each time, so an upgrade takes effect at once.
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
        return await answer(request, content, kind, **{"ETag": tag, "Cache-Control": "no-cache"})

    return [web.get(path, send) for path in ("/", "/page/{name}", "/runbooks/{name}")]
