"""The bound of a whole request head, which aiohttp has not: it bounds fields and their number, and keeps each twice."""

import asyncio
from collections.abc import Callable

HEAD_BYTES_MAX = 32 << 10
"""Of a head that has not ended, before any password: from 250 connections it is 16 MB."""

_END = b"\r\n\r\n"


class HeadBound(asyncio.Protocol):
    """Stands before `handler`. `answers`: how many are under way, and how many have ended."""

    def __init__(self, handler: asyncio.Protocol, answers: Callable[[], tuple[int, int]]) -> None:
        self._handler = handler
        self._answers = answers
        self._over: int | None = (
            None  # answers that had ended when a head did: what comes is its body
        )
        self._transport: asyncio.Transport | None = None
        self._bytes = 0  # of a head that has not ended
        self._tail = b""  # of the piece before
        self.connection_lost = handler.connection_lost  # type: ignore[method-assign]
        self.eof_received = handler.eof_received  # type: ignore[method-assign]
        self.pause_writing = handler.pause_writing  # type: ignore[method-assign]
        self.resume_writing = handler.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP and TLS are
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
