"""From an origin to a connection: addresses, TCP to the one that answers first, TLS where it is asked for.

Source: RFC 8305 (happy eyeballs: a second address is tried where the first has not answered soon).
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from vllm_watch.sources import own_trouble
from vllm_watch.sources.http_connection import Connection
from vllm_watch.sources.http_failures import NotConnectedError
from vllm_watch.sources.http_names import Address, Names
from vllm_watch.sources.http_request import Origin

HEAD_START_SECONDS = 0.25
"""So long an address has before the next is tried beside it (RFC 8305, 8)."""

TRUST_SECONDS = 60.0
"""After a certificate was refused, what this host trusts is read anew, no more often than this: it may
have been mended, or could not be read before for want of a file descriptor."""

MakeConnection = Callable[[], Connection]


class Connecting:
    """Makes connections. One event loop."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._trust: ssl.SSLContext | None = None
        self._trust_read_s = 0.0

    async def connect(self, origin: Origin, make: MakeConnection) -> Connection:
        """Connect to one of the addresses that the origin has. Raises NotConnectedError."""
        try:
            left = list(await self._names.addresses(origin.host, origin.port))
        except OSError as error:
            raise NotConnectedError("dns", error) from error
        failed: NotConnectedError | None = None
        while left:
            try:
                address, sock = await _first_of(left)
            except OSError as error:
                raise failed or NotConnectedError("tcp", error) from error
            try:
                return await self._over(sock, origin, make)
            except NotConnectedError as error:
                failed = error
                left.remove(address)
        assert failed is not None  # noqa: S101 - a name has an address
        raise failed

    async def _over(self, sock: socket.socket, origin: Origin, make: MakeConnection) -> Connection:
        """Begin to speak on a socket that is connected, and is closed where that fails."""
        secure, name = None, None
        if origin.scheme == "https":
            try:
                secure, name = await self._trusted(), origin.host.partition("%")[0].rstrip(".")
            except RuntimeError as error:  # no thread can be begun
                sock.close()
                raise NotConnectedError("tcp", OSError(errno.ENOMEM, str(error))) from error
            except BaseException:
                sock.close()
                raise
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                make, sock=sock, ssl=secure, server_hostname=name
            )
        except ssl.SSLError as error:
            self._distrusted()
            raise NotConnectedError("tls", error) from error
        except OSError as error:
            raise NotConnectedError("tcp", error) from error
        return connection

    async def _trusted(self) -> ssl.SSLContext:
        """Whom this host trusts. Read in a thread: it is hundreds of certificates."""
        if self._trust is None:
            self._trust_read_s = asyncio.get_running_loop().time()
            self._trust = await asyncio.to_thread(_trust_of_this_host)
        return self._trust

    def _distrusted(self) -> None:
        if asyncio.get_running_loop().time() - self._trust_read_s >= TRUST_SECONDS:
            self._trust = None


def _trust_of_this_host() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _first_of(addresses: list[Address]) -> tuple[Address, socket.socket]:
    """Connect to whichever answers first, each with a head start before the next. Raises OSError."""
    if len(addresses) == 1:
        return addresses[0], await _reach(addresses[0])
    waiting = list(addresses)
    reaching: dict[asyncio.Task[socket.socket], Address] = {}
    errors: list[OSError] = []
    try:
        while waiting or reaching:
            if waiting:
                address = waiting.pop(0)
                reaching[asyncio.create_task(_reach(address))] = address
            done, _ = await asyncio.wait(
                reaching, timeout=HEAD_START_SECONDS if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            for task in done:
                address = reaching.pop(task)
                error = task.exception()
                if error is None:
                    return address, task.result()
                if not isinstance(error, OSError):
                    raise error
                errors.append(error)
    finally:
        _leave(reaching)
    raise _most_telling(errors)


def _leave(reaching: "dict[asyncio.Task[socket.socket], Address]") -> None:
    """The others, which are too late."""
    for task in reaching:
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().close()


async def _reach(address: Address) -> socket.socket:
    family, to = address
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, to)
    except BaseException:
        sock.close()
        raise
    return sock


def _most_telling(errors: list[OSError]) -> OSError:
    """A refusal is an answer; what this host lacks explains the rest; and the first address is meant most."""
    refused = (error for error in errors if error.errno == errno.ECONNREFUSED)
    ours = (error for error in errors if own_trouble.of_error(error) is not None)
    return next(refused, None) or next(ours, None) or errors[0]
