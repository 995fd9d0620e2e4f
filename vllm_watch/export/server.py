"""The HTTP server: everything that the watcher shows, always from the board, never collecting anything."""

import asyncio
import errno
import logging
import socket
from collections.abc import Collection, Iterable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from vllm_watch.errors import ServeError
from vllm_watch.export.answers import (
    BODY_BYTES_MAX,
    add_headers,
    errors_as_json,
    small_bodies,
)
from vllm_watch.export.api import Api, Ready, Recording, Reload
from vllm_watch.export.assets import Assets
from vllm_watch.export.board import Board
from vllm_watch.export.callers import allowed_hosts, only_from
from vllm_watch.export.events import Events
from vllm_watch.export.status import Status

KEEP_ALIVE_SECONDS = (
    75.0  # longer than the common scrape intervals, so that Prometheus keeps its connection
)
FIRST_REQUEST_SECONDS = 10.0  # to send a whole request head after connecting
SHUTDOWN_SECONDS = 2.0  # what remains then is a reader that we need not wait for
_SWEEP_SECONDS = 2.5


class _CallersFaults(logging.Filter):
    """Keeps malformed requests out of the log: a port scan must not fill a disk with tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_log = logging.getLogger("vllm_watch.export")
_log.addFilter(_CallersFaults())


class Server:
    """Serves one board. `port` 0 takes a free one; `names` are further Host names to answer to on loopback."""

    def __init__(
        self,
        board: Board,
        *,
        host: str,
        port: int,
        ready: Ready,
        reload: Reload | None = None,
        recording: Recording | None = None,
        names: Collection[str] = (),
        further: Iterable[web.RouteDef] = (),
    ) -> None:
        """`further` are routes that others bring along: what changes something."""
        self._board = board
        self._host = host
        self._names = names
        self.port = port  # the one asked for; after `start`, the one bound
        status = Status(board)
        api = Api(board, status, ready=ready, reload=reload, recording=recording)
        self._routes = [
            *api.routes(), *Assets().routes(), web.get("/api/v1/events", Events(board, status).handle), *further,
        ]  # fmt: skip
        self._runner: web.AppRunner | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._asked: set[object] = set()  # connections that have sent a whole request

    async def start(self) -> None:
        """Bind and serve. Raises ServeError."""
        bound = self._bind()
        self.port = bound.getsockname()[1]
        app = web.Application(middlewares=self._middlewares(), client_max_size=BODY_BYTES_MAX)
        app.on_response_prepare.append(add_headers)
        app.on_shutdown.append(self._close_listeners)
        app.add_routes(self._routes)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_log, handle_signals=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS, lingering_time=1.0,
        )  # fmt: skip
        await self._runner.setup()
        await web.SockSite(self._runner, bound).start()
        self._sweeper = asyncio.create_task(self._drop_silent_connections(self._runner))

    async def stop(self) -> None:
        """Stop serving and free the port. Streams end, other answers get a moment to finish."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    def _bind(self) -> socket.socket:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            bound = socket.socket(family, kind, protocol)
        except OSError as error:
            raise self._cannot_bind(error) from error
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.setblocking(False)
        except OSError as error:
            bound.close()
            raise self._cannot_bind(error) from error
        return bound

    def _cannot_bind(self, error: OSError) -> ServeError:
        remedies = {
            errno.EADDRINUSE: "Stop what listens there, or choose another with --listen HOST:PORT",
            errno.EACCES: "Choose a port of 1024 or above with --listen HOST:PORT",
        }
        return ServeError(
            f"Cannot listen on {self._host}:{self.port}: {error.strerror}",
            remedies.get(
                error.errno or 0, "Give an address of this machine with --listen HOST:PORT"
            ),
        )

    def _middlewares(self) -> list[Middleware]:
        @web.middleware
        async def asked(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._asked.add(request.protocol)
            return await handler(request)

        hosts = allowed_hosts(self._host, self._names)
        return [asked, errors_as_json, only_from(hosts, self.port), small_bodies]

    async def _close_listeners(self, _: web.Application) -> None:
        self._board.listeners.close()

    async def _drop_silent_connections(self, runner: web.AppRunner) -> None:
        """Close connections on which no whole request came in time, which aiohttp would keep for ever."""
        loop = asyncio.get_running_loop()
        silent: dict[object, float] = {}  # connection → when it was first seen
        while runner.server is not None:
            await asyncio.sleep(_SWEEP_SECONDS)
            connections = runner.server.connections
            self._asked.intersection_update(connections)
            silent = {c: silent.get(c, loop.time()) for c in connections if c not in self._asked}
            for connection in connections:
                if loop.time() - silent.get(connection, loop.time()) > FIRST_REQUEST_SECONDS:
                    connection.force_close()
                    if connection.transport is not None:
                        connection.transport.abort()
