"""Read HTTP bodies to their end, within a size limit."""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from aiohttp import web

    Message = aiohttp.ClientResponse | web.BaseRequest


class TooLongError(aiohttp.ClientPayloadError):
    """The body is too long."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"it sends more than {bytes_max:,} bytes")
        self.bytes_max = bytes_max


async def body(message: "Message", bytes_max: int) -> bytes:
    """Return the body. The caller must limit the time. Raises TooLongError, or an
    aiohttp.ClientError, TimeoutError or OSError if the body is incomplete."""
    whole = bytearray()
    async for piece in message.content.iter_any():
        whole += piece
        if len(whole) > bytes_max:
            raise TooLongError(bytes_max)
    return bytes(whole)


async def beginning(message: "Message", bytes_max: int, seconds: float) -> bytes:
    """Return the part of the body received within `seconds`, at most `bytes_max`. Raises aiohttp.ClientError or OSError if the body is incomplete."""
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


async def lines(message: "Message", bytes_max: int) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines of a stream. Raises TooLongError for a line longer than `bytes_max`."""
    rest = b""
    async for piece in message.content.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line
        if len(rest) > bytes_max:
            raise TooLongError(bytes_max)


def why_none(error: Exception, timeout_seconds: float) -> str:
    """Return why a server did not answer, as part of a sentence."""
    if isinstance(error, TimeoutError):
        return f"nothing within {timeout_seconds:g} s"
    number = getattr(error, "errno", None)
    return (
        os.strerror(number) if number and number > 0 else str(error) or type(error).__name__
    ).lower()
