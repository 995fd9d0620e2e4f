"""Which addresses a host has: asked of the system's resolver in a thread, and remembered for a while."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import Any

KEPT_SECONDS = 30.0
"""A pod that is replaced gets another address; and most servers are asked more often than this."""

NAMES_MAX = 1000
"""Remembered at once; beyond, they are asked for anew."""

Address = tuple[
    socket.AddressFamily, tuple[Any, ...]
]  # the second is what its family calls an address


Resolve = Callable[[str, int], Awaitable[list[Address]]]


class Names:
    """Remembers; questions for one name at one time are one question."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve or _of_the_system
        self._known: dict[tuple[str, int], tuple[float, list[Address]]] = {}
        self._asking: dict[tuple[str, int], asyncio.Task[list[Address]]] = {}

    async def addresses(self, host: str, port: int) -> list[Address]:
        """In the order in which they are to be tried; at least one. Raises OSError."""
        literal = _literal(host, port)
        if literal:
            return literal
        key, loop = (host, port), asyncio.get_running_loop()
        until_s, found = self._known.get(key, (0.0, []))
        if loop.time() < until_s:
            return found
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = loop.create_task(self._ask(key))
            asking.add_done_callback(lambda task: self._asked(key, task))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if asking.cancelled():
                raise OSError("the session was closed while it was asked for") from None
            raise

    def close(self) -> None:
        """Wait for no answer any more."""
        for asking in self._asking.values():
            asking.cancel()

    async def _ask(self, key: tuple[str, int]) -> list[Address]:
        try:
            addresses = _in_turn(await self._resolve(*key))
        except UnicodeError as error:
            raise OSError("it cannot be a name") from error
        if not addresses:
            raise OSError("it has no address")
        if len(self._known) >= NAMES_MAX:
            self._known.clear()
        until_s = asyncio.get_running_loop().time() + KEPT_SECONDS
        self._known[key] = (until_s, addresses)
        return addresses

    def _asked(self, key: tuple[str, int], task: "asyncio.Task[list[Address]]") -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever waited has it; where all went away, nobody wants it


async def _of_the_system(host: str, port: int) -> list[Address]:
    loop, configured = asyncio.get_running_loop(), socket.AI_ADDRCONFIG
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=configured)
    except RuntimeError as error:  # no thread can be begun, for want of memory or by a limit
        raise OSError(errno.ENOMEM, str(error)) from error
    return [(family, address) for family, _, _, _, address in found]


def _literal(host: str, port: int) -> list[Address]:
    """Return what an address in figures means; nothing for a name. Asks nobody."""
    if not host[-1:].isdigit() and ":" not in host:
        return []
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        return []
    return [(family, address) for family, _, _, _, address in found]


def _in_turn(addresses: list[Address]) -> list[Address]:
    """Both families alternately, as RFC 8305 has it: where one leads nowhere, the next may be the other."""
    first = [each for each in addresses if each[0] == addresses[0][0]]
    others = [each for each in addresses if each[0] != addresses[0][0]]
    both = [each for pair in zip(first, others, strict=False) for each in pair]
    return both + first[len(others) :] + others[len(first) :]
