"""One connection to a server, on which one question at a time is asked: a protocol of asyncio, nothing between.

It ends by itself whatever it cannot trust: where bytes come that nobody asked for, where an answer was
given up, or whose end is the connection's.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_response import OK, ResponseReader

REFUSAL_BYTES_MAX = 2048
"""Of a body that says why a POST was refused: a sentence or two."""

_NO_WORD = (
    "the server closed the connection after the TLS handshake, without a word: does it ask for a certificate "
    "(tls_config.cert_file), or refuse the one that it is shown?"
)


class Wanted(NamedTuple):
    """What is expected of an answer."""

    deadline_s: float  # of the loop's clock
    seconds: float  # that were there in all, for the words
    body_bytes_max: int


class Reply(NamedTuple):
    """How a question ended. No exception: its traceback would hold what came of the body until a collection."""

    outcome: str  # one of samples.observation.OUTCOMES
    error: str | None = None
    status: int | None = None
    headers: Mapping[str, str] = {}  # by names in lower case
    body: bytes = b""
    arrived_monotonic_s: float = 0.0  # when its last byte came, maybe long before anyone looks
    late_s: float = 0.0  # how much later than due our own clock ended it
    kept: bool = False  # on a connection that answered before
    waited_s: float = 0.0  # for our own turn to connect: no part of the server's time


class Connection(asyncio.BufferedProtocol):
    """A connection that is made, and what it is asked now.

    `room` is where bytes arrive: one piece of memory for all connections of a loop, since what came is taken
    out of it at once. Without it asyncio makes 256 kB of room for each answer, which costs more than to read it.
    """

    def __init__(self, room: memoryview, lost: Callable[["Connection"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._made_s = self._loop.time()
        self._room = room
        self._tell_lost = lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._reader = ResponseReader()
        self._wanted = Wanted(0.0, 0.0, 0)
        self._error: Exception | None = None  # that ended it
        self._tls_13 = False
        self._heard = False  # has any byte ever come?
        self._given_up = False  # was it us who ended it?
        self.begun = False  # has any byte of the answer come?
        self.reusable = False
        self._stays_until_s: float | None = None  # of the loop's clock; None: somebody asks
        self._end_of_stay: asyncio.TimerHandle | None = None  # one for many stays

    @property
    def is_open(self) -> bool:
        """Is there still somebody at the other end, as far as we have heard?"""
        return self._transport is not None and not self._transport.is_closing()

    def is_fresh(self, seconds: float) -> bool:
        """Return True if it was made less than so long ago."""
        return self._loop.time() - self._made_s < seconds

    async def exchange(self, request: bytes, wanted: Wanted) -> Reply:
        """Ask, and wait for the answer."""
        if self._transport is None:  # it was closed before we asked
            return self._broken_off()
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        self._waiter = waiter
        self._wanted, self.begun, self.reusable = wanted, False, False
        self._reader.expect(wanted.body_bytes_max, REFUSAL_BYTES_MAX)
        timer = self._loop.call_at(wanted.deadline_s, self._time_out)
        try:
            self._transport.write(request)
            self._transport.resume_reading()
            return await waiter
        except asyncio.CancelledError:
            self.reusable = False
            raise
        finally:
            timer.cancel()
            if not self.reusable:
                self.abort()
            # An idle connection holds nothing: of a thousand, the bodies would be 50 MB.
            self._waiter = None
            self._reader.expect(0)

    def stay(self, seconds: float | None = None) -> None:
        """End it after so long, if nobody asks any more; None: somebody does."""
        self._stays_until_s = self._loop.time() + seconds if seconds else None
        if seconds and self._end_of_stay is None:
            self._end_of_stay = self._loop.call_later(seconds, self._leave)

    def _leave(self) -> None:
        """The time of its first stay is over; since then it may have been used."""
        self._end_of_stay = None
        if self._stays_until_s is None:
            return
        left_s = self._stays_until_s - self._loop.time()
        if left_s > 0.0:
            self._end_of_stay = self._loop.call_later(left_s, self._leave)
        else:
            self.abort()

    def abort(self) -> None:
        """End it now."""
        self._given_up = True
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS are
        self._transport = transport
        secure = transport.get_extra_info("ssl_object")
        self._tls_13 = secure is not None and secure.version() == "TLSv1.3"
        transport.pause_reading()  # who speaks before it is asked is heard when it is

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():  # these bytes answer nothing
            self.reusable = False
            self.abort()
            return
        self.begun = self._heard = True
        try:
            reader.feed(self._room[:nbytes])
            if reader.ended:
                self._done()
        except MemoryError as error:
            self._end(Reply(own_trouble.OUTCOME, own_trouble.of_error(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._error = None, exc
        self.stay()
        if self._end_of_stay is not None:
            self._end_of_stay.cancel()
        self._tell_lost(self)
        if exc is None and not self._given_up and self._reader.end():
            self._done()
        else:
            self._end(self._broken_off())
        self._reader.close()

    # --- how a question ends

    def _done(self) -> None:
        reader = self._reader
        if reader.wrong is not None:
            outcome, said = reader.wrong
            if outcome == "too_large":
                said = f"the body is longer than {self._wanted.body_bytes_max} bytes"
            self._end(Reply(outcome, said, reader.status or None))
            return
        outcome, error = ("ok", None) if reader.status == OK else ("http", f"HTTP {reader.status}")
        self.reusable = reader.whole and reader.keeps and not reader.extra and self.is_open
        self._end(Reply(outcome, error, reader.status, reader.headers, reader.body(), time.monotonic()))  # fmt: skip

    def _time_out(self) -> None:
        reader, seconds = self._reader, self._wanted.seconds
        late_s = self._loop.time() - self._wanted.deadline_s
        if reader.status:
            came = f"its head came, and {reader.body_bytes} bytes of the body"
        else:
            came = "its head did not end" if self.begun else "not a byte came"
        said = f"connected, but no complete answer within {seconds:g} s: {came}"
        self._end(Reply("read_timeout", said, late_s=late_s))

    def _broken_off(self) -> Reply:
        error = self._error
        ours = None if error is None else own_trouble.of_error(error)
        if ours is not None:
            return Reply(own_trouble.OUTCOME, ours)
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return Reply("tls", f"the server ended TLS: {error}")
        if self._tls_13 and not self._heard and not self._given_up:
            # A client's certificate is judged after the handshake, and asyncio's servers (uvicorn) close without
            # a word. Taken for an engine that breaks off, one that has run out would restart a fleet.
            return Reply("tls", _NO_WORD)
        if self._reader.status:
            return Reply("disconnected", "the connection broke off in the middle of the body")
        said = "Server disconnected" if error is None else str(error) or type(error).__name__
        return Reply("disconnected", f"the connection broke off: {said}")

    def _end(self, reply: Reply) -> None:
        """This ended it; but where a refusal was begun, its status and what came of it are the answer."""
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():
            return
        if reply.outcome in ("read_timeout", "disconnected") and reader.status not in (0, OK):
            reply = Reply("http", f"HTTP {reader.status}", reader.status, reader.headers, reader.body(), time.monotonic())  # fmt: skip
        waiter.set_result(reply)
