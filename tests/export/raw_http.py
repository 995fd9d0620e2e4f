"""HTTP as no client of ours would send it: bytes on a socket, and what came back."""

import asyncio
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """All that came until the server closed the connection, or nothing more came for a while."""

    bytes: bytes
    closed: bool

    @property
    def statuses(self) -> list[int]:
        """The status of each answer, in order."""
        return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", self.bytes)]


async def send(port: int, *parts: bytes, pause_s: float = 0.0, quiet_s: float = 2.0) -> Said:
    """Put the parts on a new connection, one after the other, and read until nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    closed = False
    try:
        for part in parts:
            writer.write(part)
            if pause_s:
                await asyncio.sleep(pause_s)
        while True:
            async with asyncio.timeout(quiet_s):
                chunk = await reader.read(65536)
            if not chunk:
                closed = True
                break
            got += chunk
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return Said(got, closed)


def request(
    method: str, path: str, *lines: str, body: bytes = b"", host: str = "localhost"
) -> bytes:
    """One request; a Content-Length only where a line says it."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines])
    return head.encode("latin-1") + b"\r\n\r\n" + body
