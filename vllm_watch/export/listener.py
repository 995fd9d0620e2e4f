"""Limit connections, so that slow clients leave file descriptors for scrapes."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from vllm_watch.support import descriptors

CONNECTIONS_MAX = descriptors.CALLERS_MAX
"""Maximum connections, half of the usual limit of 1,024 file descriptors."""

CONNECTIONS_PER_CALLER_MAX = 256
"""Maximum connections per address, so that one client leaves room for others."""

FIRST_REQUEST_SECONDS = 10.0  # until the request's head is complete
IDLE_SECONDS = 90.0  # longer than the server's keep-alive
HANDSHAKE_SECONDS = 10.0  # three round trips on a busy machine
SWEEP_SECONDS = 2.5
_NO_ROOM_SECONDS = 0.2  # pause when descriptors have run out
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Connection:
    caller: str
    since_s: float  # time of connecting or of the last response
    asked: bool = False
    answering: int = 0
    answered: int = 0
    handshake: asyncio.Task[None] | None = None
    taken: socket.socket | None = None
    handler: RequestHandler | None = None


class Listener:
    """Serves one socket. At the limit, a new connection replaces the one that was idle longest."""

    def __init__(
        self, bound: socket.socket, server: web.Server, context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """`context` is called per connection, so that certificates can be renewed."""
        self._bound = bound
        self._server = server
        self._context = context
        self._all: set[_Connection] = set()
        self._of_handler: dict[object, _Connection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._told = False

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._accept_on(), name="accept"),
            asyncio.create_task(self._sweep_on(), name="sweep"),
        ]

    async def stop(self) -> None:
        handshakes = [each.handshake for each in self._all if each.handshake is not None]
        for task in (*self._tasks, *handshakes):
            task.cancel()
        await asyncio.gather(*self._tasks, *handshakes, return_exceptions=True)
        self._bound.close()

    def began(self, handler: object) -> None:
        found = self._of_handler.get(handler)
        if found is not None:
            found.asked = True
            found.answering += 1

    def ended(self, handler: object) -> None:
        found = self._of_handler.get(handler)
        if found is not None:
            found.answering -= 1
            found.answered += 1
            found.since_s = asyncio.get_running_loop().time()

    def __len__(self) -> int:
        self._forget_closed()
        return len(self._all)

    async def _accept_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, address = await loop.sock_accept(self._bound)
            except OSError as error:  # the client left, or descriptors have run out
                if error.errno in _NO_ROOM:
                    self._tell_no_room(error)
                    self._make_room(lambda _: True)
                await asyncio.sleep(_NO_ROOM_SECONDS)
                continue
            self._take(taken, str(address[0]) if address else "")

    def _take(self, taken: socket.socket, caller: str) -> None:
        if not self._has_room(caller):
            taken.close()
            return
        taken.setblocking(False)
        loop = asyncio.get_running_loop()
        one = _Connection(caller, loop.time(), taken=taken)
        self._all.add(one)
        one.handshake = loop.create_task(self._begin(one), name="connection")
        one.handshake.add_done_callback(lambda _: self._begun(one))

    async def _begin(self, one: _Connection) -> None:
        def handler() -> HeadBound:
            made = one.handler = self._server()
            self._of_handler[made] = one
            return HeadBound(made, lambda: (one.answering, one.answered))

        context = self._context()
        seconds = None if context is None else HANDSHAKE_SECONDS
        taken, one.taken = one.taken, None
        assert taken is not None  # noqa: S101
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                handler, taken, ssl=context, ssl_handshake_timeout=seconds
            )
        except (OSError, TimeoutError):
            self._forget(one)

    def _begun(self, one: _Connection) -> None:
        if one.handshake is not None and one.handshake.cancelled():
            self._forget(one)
        if one.taken is not None:  # the handshake was cancelled before it began
            one.taken.close()
        one.handshake = None

    def _has_room(self, caller: str) -> bool:
        if len(self._all) >= CONNECTIONS_PER_CALLER_MAX:
            self._forget_closed()
        own = sum(each.caller == caller for each in self._all)
        if own >= CONNECTIONS_PER_CALLER_MAX:
            return self._make_room(lambda each: each.caller == caller)
        return len(self._all) < min(CONNECTIONS_MAX, descriptors.for_callers()) or self._make_room(
            lambda _: True
        )

    def _make_room(self, among: Callable[[_Connection], bool]) -> bool:
        idle = [each for each in self._all if not each.answering and among(each)]
        if not idle:
            return False
        self._end(min(idle, key=lambda each: each.since_s))
        return True

    def _end(self, one: _Connection) -> None:
        self._forget(one)
        if one.handshake is not None:
            one.handshake.cancel()
        elif one.handler is not None:
            one.handler.force_close()
            if one.handler.transport is not None:
                one.handler.transport.abort()

    def _forget(self, one: _Connection) -> None:
        self._all.discard(one)
        self._of_handler.pop(one.handler, None)

    def _forget_closed(self) -> None:
        open_now = set(self._server.connections)
        for one in [each for each in self._all if each.handshake is None]:
            if one.handler not in open_now:
                self._forget(one)

    async def _sweep_on(self) -> None:
        # aiohttp keeps connections without requests forever.
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._forget_closed()
            for one in list(self._all):
                seconds = IDLE_SECONDS if one.asked else FIRST_REQUEST_SECONDS
                if not one.answering and loop.time() - one.since_s > seconds:
                    self._end(one)

    def _tell_no_room(self, error: OSError) -> None:
        if not self._told:
            remedy = "raise the limit of open files (ulimit -n, LimitNOFILE=)"
            _log.error("no_room_for_connections", error=str(error), remedy=remedy)
        self._told = True


HEAD_BYTES_MAX = 32 << 10
"""Maximum bytes of a request's head. The heads of 512 connections then take at most 16 MiB."""

_END = b"\r\n\r\n"


class HeadBound(asyncio.Protocol):
    """Closes the connection if a head exceeds HEAD_BYTES_MAX. `answers` returns the numbers of pending and ended responses."""

    def __init__(self, handler: asyncio.Protocol, answers: Callable[[], tuple[int, int]]) -> None:
        self._handler = handler
        self._answers = answers
        # Responses that had ended when the head was complete. None while a head is read.
        self._over: int | None = None
        self._transport: asyncio.Transport | None = None
        self._bytes = 0  # of an incomplete head
        self._tail = b""
        self.connection_lost = handler.connection_lost  # type: ignore[method-assign]
        self.eof_received = handler.eof_received  # type: ignore[method-assign]
        self.pause_writing = handler.pause_writing  # type: ignore[method-assign]
        self.resume_writing = handler.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        under_way, ended = self._answers()
        if not under_way:
            if self._over is not None and ended > self._over:
                self._over, self._bytes = None, 0
            if _END in self._tail + data:
                self._over = ended
            elif self._over is None:
                self._bytes += len(data)
        self._tail = data[-len(_END) + 1 :]
        if self._bytes <= HEAD_BYTES_MAX:
            self._handler.data_received(data)
        elif self._transport is not None:
            self._transport.close()
