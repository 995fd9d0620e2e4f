"""The bound of a whole request head, which aiohttp has not: it bounds fields and their number, and keeps each twice."""

import asyncio
from collections.abc import Callable

HEAD_BYTES_MAX = 32 << 10
"""Of a head that has not ended, before any password: from 250 connections it is 16 MB."""

_END = b"\r\n\r\n"


class HeadBound(asyncio.Protocol):
    """Stands before `handler`. `answering`: is it at a request, so that what comes is the request's body?"""

    def __init__(self, handler: asyncio.Protocol, answering: Callable[[], bool]) -> None:
        self._handler = handler
        self._answering = answering
        self._transport: asyncio.Transport | None = None
        self._bytes = 0  # of a head that has not ended
        self.connection_lost = handler.connection_lost  # type: ignore[method-assign]
        self.eof_received = handler.eof_received  # type: ignore[method-assign]
        self.pause_writing = handler.pause_writing  # type: ignore[method-assign]
        self.resume_writing = handler.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS are
        self._transport = transport
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._answering() or _END in data:
            self._bytes = 0
        else:
            self._bytes += len(data)
        if self._bytes <= HEAD_BYTES_MAX:
            self._handler.data_received(data)
        elif self._transport is not None:
            self._transport.close()
