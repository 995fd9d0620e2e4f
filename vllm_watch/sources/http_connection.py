"""A connection for one request at a time.

It closes itself after unsolicited bytes or an abandoned response.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_messages import OK, ResponseReader

REFUSAL_BYTES_MAX = 2048
"""Maximum bytes of an error response, enough for its reason."""

_CLOSED_AFTER_TLS = (
    "the server closed the connection right after the TLS handshake: it may require a client certificate "
    "(tls_config.cert_file), or refuse the one that was sent"
)


class Wanted(NamedTuple):
    """The limits of a response."""

    deadline_s: float  # on the loop's clock
    seconds: float
    body_bytes_max: int


class Reply(NamedTuple):
    """The outcome of a request. It is not an exception, because a traceback would keep the body in memory."""

    outcome: str  # one of samples.observation.OUTCOMES
    error: str | None = None
    status: int | None = None
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""
    arrived_monotonic_s: float = 0.0  # when the last byte came
    late_s: float = 0.0  # delay of our timer, if the timer ended the request
    kept: bool = False
    waited_s: float = 0.0  # wait for a free connection


class Connection(asyncio.BufferedProtocol):
    """One HTTP connection. All connections share `room`, the receive buffer, because asyncio would allocate 256 kB per response."""

    def __init__(self, room: memoryview, lost: Callable[["Connection"], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._made_s = self._loop.time()
        self._room = room
        self._on_lost = lost
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._reader = ResponseReader()
        self._wanted = Wanted(0.0, 0.0, 0)
        self._error: Exception | None = None
        self._tls_13 = False
        self._received = False
        self._given_up = False
        self.begun = False
        self.reusable = False
        self._idle_until_s: float | None = None  # on the loop's clock; None while in use
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def is_fresh(self, seconds: float) -> bool:
        return self._loop.time() - self._made_s < seconds

    async def exchange(self, request: bytes, wanted: Wanted) -> Reply:
        if self._transport is None:
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
            # An idle connection keeps no body: a thousand bodies would take 50 MB.
            self._waiter = None
            self._reader.expect(0)

    def keep_idle(self, seconds: float | None = None) -> None:
        """Close the connection after `seconds` without use. None keeps it open."""
        self._idle_until_s = self._loop.time() + seconds if seconds else None
        if seconds and self._idle_timer is None:
            self._idle_timer = self._loop.call_later(seconds, self._idle_end)

    def _idle_end(self) -> None:
        self._idle_timer = None
        if self._idle_until_s is None:
            return
        left_s = self._idle_until_s - self._loop.time()
        if left_s > 0.0:
            self._idle_timer = self._loop.call_later(left_s, self._idle_end)
        else:
            self.abort()

    def abort(self) -> None:
        self._given_up = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS transports are
        self._transport = transport
        secure = transport.get_extra_info("ssl_object")
        self._tls_13 = secure is not None and secure.version() == "TLSv1.3"
        transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():  # unsolicited bytes
            self.reusable = False
            self.abort()
            return
        self.begun = self._received = True
        try:
            reader.feed(self._room[:nbytes])
            if reader.ended:
                self._done()
        except MemoryError as error:
            self._end(Reply(own_trouble.OUTCOME, own_trouble.of_error(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._error = None, exc
        self.keep_idle()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._on_lost(self)
        if exc is None and not self._given_up and self._reader.end():
            self._done()
        else:
            self._end(self._broken_off())
        self._reader.close()

    def _done(self) -> None:
        reader = self._reader
        if reader.error is not None:
            outcome, cause = reader.error
            if outcome == "too_large":
                cause = f"the body is longer than {self._wanted.body_bytes_max} bytes"
            self._end(Reply(outcome, cause, reader.status or None))
            return
        outcome, error = ("ok", None) if reader.status == OK else ("http", f"HTTP {reader.status}")
        self.reusable = (
            reader.complete and reader.keep_alive and not reader.trailing_data and self.is_open
        )
        self._end(Reply(outcome, error, reader.status, reader.headers, reader.body(), time.monotonic()))  # fmt: skip

    def _time_out(self) -> None:
        reader, seconds = self._reader, self._wanted.seconds
        late_s = self._loop.time() - self._wanted.deadline_s
        if reader.status:
            received = f"the head and {reader.body_bytes} bytes of the body came"
        else:
            received = "its head is incomplete" if self.begun else "not a byte came"
        cause = f"connected, but no complete answer within {seconds:g} s: {received}"
        self._end(Reply("read_timeout", cause, late_s=late_s))

    def _broken_off(self) -> Reply:
        error = self._error
        ours = None if error is None else own_trouble.of_error(error)
        if ours is not None:
            return Reply(own_trouble.OUTCOME, ours)
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return Reply("tls", f"the server ended TLS: {error}")
        if self._tls_13 and not self._received and not self._given_up:
            # asyncio's servers (uvicorn) check a client certificate after the handshake, and refuse it
            # silently. An expired certificate must not restart a fleet.
            return Reply("tls", _CLOSED_AFTER_TLS)
        if self._reader.status:
            return Reply("disconnected", "the connection broke off in the middle of the body")
        cause = "Server disconnected" if error is None else str(error) or type(error).__name__
        return Reply("disconnected", f"the connection broke off: {cause}")

    def _end(self, reply: Reply) -> None:
        waiter, reader = self._waiter, self._reader
        if waiter is None or waiter.done():
            return
        if reply.outcome in ("read_timeout", "disconnected") and reader.status not in (0, OK):
            reply = Reply("http", f"HTTP {reader.status}", reader.status, reader.headers, reader.body(), time.monotonic())  # fmt: skip
        waiter.set_result(reply)
