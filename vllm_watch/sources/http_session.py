"""What is kept from one call to the next: connections that can be used again, addresses, URLs taken apart.

A question is sent once. Only a GET is sent once more, on a new connection, where the old one was closed before
a byte of the answer came: servers close idle connections (uvicorn after 5 s), at times as we use them.
Nothing else goes over a connection that was used before, so nothing else can meet this.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from vllm_watch.sources.http_connecting import Connecting
from vllm_watch.sources.http_connection import Connection, Response, Wanted
from vllm_watch.sources.http_failures import BrokenOffError, NotAskedError, OutOfTimeError
from vllm_watch.sources.http_names import Names
from vllm_watch.sources.http_request import Origin, Place, place, request

IDLE_SECONDS = 75.0
"""A connection that was not used for so long is closed: nobody asks this server any more."""

SWEEP_SECONDS = 15.0
URLS_MAX = 8192
"""Remembered at once: some for each of a thousand servers. Beyond, they are taken apart anew."""

ROOM_BYTES = 256 << 10
"""Taken from a socket at once: more than a usual /metrics, so that it is one turn of the loop."""

_CLOSE_SECONDS = 1.0  # an aborted connection ends in the next turn of the loop


class Bounds(NamedTuple):
    """Of one call: until connected, until the last byte, and of the body."""

    connect_seconds: float
    seconds: float
    body_bytes_max: int


class Session:
    """Asks servers. One event loop; close it."""

    def __init__(self, names: Names | None = None) -> None:
        self._names = names if names is not None else Names()
        self._connecting = Connecting(self._names)
        self._idle: dict[Origin, list[Connection]] = {}  # the one used last is last
        self._open: set[Connection] = set()
        self._places: dict[str, Place] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._room = memoryview(bytearray(ROOM_BYTES))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def connections(self) -> int:
        """How many are open, in use or idle."""
        return len(self._open)

    async def close(self) -> None:
        """End every connection; calls under way fail."""
        self._closed = True
        self._names.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._idle.clear()
        ending = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_SECONDS)

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, bounds: Bounds
    ) -> Response:
        """Make one call. Raises what http_failures has, ValueError, zlib.error, MemoryError."""
        if self._closed:
            raise RuntimeError("the session is closed")
        began_s = asyncio.get_running_loop().time()
        try:
            to = self._places.get(url) or self._taken_apart(url)
            question = request(method, to, headers, body)
        except ValueError as error:
            raise NotAskedError(f"it cannot be asked: {error}") from error
        wanted = Wanted(began_s + bounds.seconds, bounds.body_bytes_max, method != "GET")
        if method == "GET" and (kept := self._kept(to.origin, began_s)) is not None:
            try:
                return await self._exchange(to.origin, kept, question, wanted)
            except BrokenOffError:
                if kept.begun:
                    raise
        connection = await self._connected(to.origin, bounds, wanted.deadline_s)
        return await self._exchange(to.origin, connection, question, wanted)

    def _taken_apart(self, url: str) -> Place:
        if len(self._places) >= URLS_MAX:
            self._places.clear()
        taken = self._places[url] = place(url)
        return taken

    async def _exchange(
        self, origin: Origin, connection: Connection, question: bytes, wanted: Wanted
    ) -> Response:
        response = await connection.exchange(question, wanted)
        if connection.reusable and not self._closed:
            self._keep(origin, connection)
        return response

    async def _connected(self, origin: Origin, bounds: Bounds, deadline_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        connect_by_s = loop.time() + bounds.connect_seconds
        due_s = min(connect_by_s, deadline_s)
        try:
            async with asyncio.timeout_at(due_s) as limit:
                connection = await self._connecting.connect(
                    origin, lambda: Connection(loop, self._room, self._lost)
                )
        except TimeoutError as error:
            if not limit.expired():
                raise
            # At the deadline: a server that had taken a connection before, and hung.
            raise OutOfTimeError(loop.time() - due_s, connected=due_s < connect_by_s) from error
        self._open.add(connection)
        if not connection.is_open:
            self._open.discard(connection)
        elif self._closed:
            connection.abort()
        return connection

    def _kept(self, origin: Origin, now_s: float) -> Connection | None:
        """Return an idle connection that is still open, as far as we have heard."""
        kept = self._idle.get(origin)
        while kept:
            connection = kept.pop()
            if connection.is_open and now_s - connection.idle_since_s < IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    def _keep(self, origin: Origin, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since_s = loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)

    def _lost(self, connection: Connection) -> None:
        self._open.discard(connection)

    def _sweep(self) -> None:
        """End what has been idle for long, and forget what has ended."""
        self._sweeper = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for origin, kept in list(self._idle.items()):
            for connection in list(kept):
                if not connection.is_open or now_s - connection.idle_since_s >= IDLE_SECONDS:
                    connection.abort()
                    with suppress(ValueError):
                        kept.remove(connection)
            if not kept:
                del self._idle[origin]
        if self._idle:
            self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)
