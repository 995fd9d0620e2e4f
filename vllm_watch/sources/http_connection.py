"""One connection to a server, on which one question at a time is asked: a protocol of asyncio, nothing between.

It ends by itself whatever it cannot trust: where bytes come that nobody asked for, where an answer was
given up, or whose end is the connection's.
"""

import asyncio
import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

from vllm_watch.sources import http_response
from vllm_watch.sources.http_body import Body
from vllm_watch.sources.http_failures import (
    BrokenOffError,
    NotHttpError,
    NotUnpackedError,
    OutOfTimeError,
    TooLargeError,
)

REFUSAL_BYTES_MAX = 2048
"""Of a body that says why a POST was refused: a sentence or two."""


class Wanted(NamedTuple):
    """What is expected of an answer."""

    deadline_s: float  # of the loop's clock
    body_bytes_max: int
    refusal: bool  # is the beginning of the body wanted where the status is not 200?


class Response(NamedTuple):
    """An answer that was had."""

    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes
    arrived_monotonic_s: float  # when its last byte came, which may be long before anyone looks


class Connection(asyncio.BufferedProtocol):
    """A connection that is made, and what it is asked now.

    `room` is where bytes arrive: one piece of memory for all connections of a loop, since what came is taken
    out of it at once. Without it asyncio makes 256 kB of room for each answer, which costs more than to read it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        room: memoryview,
        lost: Callable[["Connection"], None],
    ) -> None:
        self._loop = loop
        self._room = room
        self._tell_lost = lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Response] | None = None
        self._reader = http_response.ResponseReader()
        self._body: Body | None = None
        self._refusal = b""
        self._wanted = Wanted(0.0, 0, refusal=False)
        self._early = b""  # what came before anything was asked
        self._lost: tuple[Exception | None] | None = None  # with what error, once it is
        self._given_up = False  # was it us who ended it?
        self.asked = 0
        self.begun = False  # has any byte of the answer come?
        self.reusable = False
        self.idle_since_s = 0.0
        self.closed: asyncio.Future[None] = loop.create_future()

    @property
    def is_open(self) -> bool:
        """Is there still somebody at the other end, as far as we have heard?"""
        return self._lost is None and self._transport is not None and not self._transport.is_closing()  # fmt: skip

    async def exchange(self, request: bytes, wanted: Wanted) -> Response:
        """Ask, and wait for the answer. Raises what http_failures has, ValueError, zlib.error, MemoryError."""
        waiter: asyncio.Future[Response] = self._loop.create_future()
        self._waiter = waiter
        self.asked += 1
        self._wanted, self.begun, self.reusable = wanted, False, False
        timer = self._loop.call_at(wanted.deadline_s, self._time_out)
        try:
            if self._transport is not None:
                self._transport.write(request)
            self._begin()
            return await waiter
        except asyncio.CancelledError:
            self.reusable = False
            if not waiter.cancelled():
                waiter.exception()  # it had failed in the same moment; nobody is left to be told
            raise
        finally:
            timer.cancel()
            if not self.reusable:
                self.abort()
            # An idle connection holds nothing: of a thousand, the bodies would be 50 MB.
            self._waiter, self._reader = None, http_response.ResponseReader()
            self._body, self._refusal = None, b""

    def abort(self) -> None:
        """End it now."""
        self._given_up = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS are
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._arrived(bytes(self._room[:nbytes]))

    def _arrived(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._unasked(data)
            return
        self.begun = True
        reader = self._reader
        try:
            piece = reader.feed(data)
            if reader.status == http_response.OK:
                self._take(piece)
            elif reader.status:
                self._take_other(piece)
        except (NotHttpError, TooLargeError, NotUnpackedError, zlib.error, ValueError, MemoryError) as error:  # fmt: skip
            waiter.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = (exc,)
        self._transport = None
        self._tell_lost(self)
        if not self.closed.done():
            self.closed.set_result(None)
        self._end(exc)

    def _begin(self) -> None:
        """Take into account what happened before we asked: who speaks first may also have gone already."""
        if self._early:
            early, self._early = self._early, b""
            self._arrived(early)
        if self._lost is not None:
            self._end(self._lost[0])

    def _unasked(self, data: bytes) -> None:
        """Bytes that answer nothing: kept where the connection is new, otherwise its end."""
        if self.asked or len(self._early) > http_response.HEAD_BYTES_MAX:
            self.reusable = False
            self.abort()
        else:
            self._early += data

    def _take(self, piece: bytes) -> None:
        if self._body is None:
            encoding = self._reader.headers.get("content-encoding", "")
            self._body = Body(encoding, self._wanted.body_bytes_max)
        if piece:
            self._body.take(piece)
        if self._reader.whole:
            self._done(self._body.finish())

    def _take_other(self, piece: bytes) -> None:
        """An answer that is no success: its status is enough, or it and the beginning of what it says."""
        if not self._wanted.refusal:
            self._done(b"")
            return
        self._refusal += piece[: REFUSAL_BYTES_MAX - len(self._refusal)]
        if self._reader.whole or len(self._refusal) == REFUSAL_BYTES_MAX:
            self._done(self._refusal)

    def _done(self, body: bytes) -> None:
        reader, waiter = self._reader, self._waiter
        assert waiter is not None  # noqa: S101 - callers have looked
        self.reusable = reader.whole and reader.keeps and not reader.extra and self.is_open
        waiter.set_result(Response(reader.status, reader.headers, body, time.monotonic()))

    def _time_out(self) -> None:
        late_s = self._loop.time() - self._wanted.deadline_s
        self._fail(OutOfTimeError(late_s, connected=True))

    def _end(self, error: Exception | None) -> None:
        """The connection is over: properly where `error` is None."""
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():
            return
        if error is None and not self._given_up and reader.status and reader.end():
            try:
                (self._take if reader.status == http_response.OK else self._take_other)(b"")
            except (NotUnpackedError, ValueError) as failed:
                waiter.set_exception(failed)
        elif isinstance(error, MemoryError):
            waiter.set_exception(error)
        else:
            self._fail(BrokenOffError(error, in_body=bool(reader.status)))

    def _fail(self, error: Exception) -> None:
        """What ended it, unless a refusal was begun: then its status and what came of it are the answer."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._refusal:
            self._done(self._refusal)
        else:
            waiter.set_exception(error)
