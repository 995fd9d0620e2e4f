"""The one way to read what comes over HTTP: to its end, within bytes; who waits for it has a timeout.

An answer comes in as many pieces as the network makes of it, so a single read returns a part.
`tests/test_one_way_to_read.py` finds readers that do otherwise.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Protocol

import aiohttp


class Message(Protocol):
    """An answer of a server's, or a request to ours."""

    @property
    def content(self) -> aiohttp.StreamReader:
        """The body, as it comes."""


class TooLongError(aiohttp.ClientPayloadError):
    """A body has more bytes than are read."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"it sends more than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


async def body(message: Message, bytes_max: int) -> bytes:
    """Return the whole body. The session's `total` timeout ends it, or the caller's own.

    Raises:
        TooLongError: it has more than `bytes_max` bytes.
        aiohttp.ClientError, TimeoutError, OSError: it did not come whole.
    """
    whole = bytearray()
    async for piece in message.content.iter_any():
        whole += piece
        if len(whole) > bytes_max:
            raise TooLongError(bytes_max)
    return bytes(whole)


async def beginning(message: Message, bytes_max: int, seconds: float) -> bytes:
    """Return as much of the body as comes within `seconds`, `bytes_max` at most. Raises what `body` raises."""
    part = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in message.content.iter_any():
                part += piece
                if len(part) >= bytes_max:
                    break
    except TimeoutError:
        pass
    return bytes(part[:bytes_max])


async def lines(message: Message, bytes_max: int) -> AsyncGenerator[bytes, None]:
    """Yield each line of a stream as it comes; what is cut off at the end is not a line.

    Raises:
        TooLongError: a line has more than `bytes_max` bytes.
    """
    rest = b""
    async for piece in message.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > bytes_max:
            raise TooLongError(bytes_max)


def why_none(error: Exception, timeout_seconds: float) -> str:
    """Return why a server did not answer, in words."""
    if isinstance(error, TimeoutError):
        return f"nothing within {timeout_seconds:g} s"
    number = getattr(error, "errno", None)
    return (
        os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
    ).lower()
