"""Listens where a page says that something is, and passes on what comes to where it really is."""

import asyncio
import ssl

_HANDSHAKE = 0x16  # the first byte of a TLS connection


async def relay(
    port: int, plain: int, tls: int | None = None, *, host: str = "127.0.0.1", own: ssl.SSLContext | None = None
) -> asyncio.Server:  # fmt: skip
    """From `port` to the port `plain` of this host, or to `tls` if the client speaks TLS; with `own`, TLS ends here."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await reader.read(1 << 16)
            to = tls if tls is not None and first[:1] == bytes([_HANDSHAKE]) else plain
            there, back = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        back.write(first)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    return await asyncio.start_server(call, host, port, ssl=own)
