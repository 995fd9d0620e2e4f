"""Callers that are slow on purpose: heads and bodies byte by byte, answers that nobody reads."""

import asyncio
import contextlib
import socket
import time
import urllib.request
from collections.abc import AsyncIterator

HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
BODY = b"POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n"
WHOLE = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
DRIP_SECONDS = 0.5


@contextlib.asynccontextmanager
async def slow_callers(port: int, each: int) -> AsyncIterator[None]:
    """Of each kind so many, which come back as soon as they are thrown out."""
    tasks = [
        asyncio.create_task(kind(port))
        for kind in (_drips_head, _drips_body, _reads_nothing, _says_nothing)
        for _ in range(each)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drips_head(port: int) -> None:
    await _again_and_again(port, HEAD)


async def _drips_body(port: int) -> None:
    await _again_and_again(port, BODY)


async def _says_nothing(port: int) -> None:
    await _again_and_again(port, b"", drips=b"")


async def _reads_nothing(port: int) -> None:
    await _again_and_again(port, WHOLE * 20, drips=b"")


async def _again_and_again(port: int, begins: bytes, drips: bytes = b"x") -> None:
    loop = asyncio.get_running_loop()
    while True:
        with contextlib.suppress(OSError), socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", port))
            await loop.sock_sendall(one, begins)
            while True:
                await asyncio.sleep(DRIP_SECONDS)
                await loop.sock_sendall(one, drips or b"")
                if not drips:
                    one.getpeername()  # raises once the server has reset the connection
        await asyncio.sleep(DRIP_SECONDS)


def scrape_seconds(port: int) -> float:
    """What one scrape on a new connection takes. Blocks."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert b"vllm_watch_target_up" in answer.read()
    return time.perf_counter() - began
