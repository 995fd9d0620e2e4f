"""Resolve host names in a thread, with a short cache."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from aiohappyeyeballs import AddrInfoType

KEPT_SECONDS = 30.0
"""Addresses are cached for at most this many seconds, because a replacement pod has a new address."""

NAMES_MAX = 1000
"""At most this many names are cached. A full cache is cleared."""

Resolve = Callable[[str, int], Awaitable[list[AddrInfoType]]]


class _Lookup(NamedTuple):
    task: "asyncio.Task[list[AddrInfoType]]"
    until_s: float  # on the loop's clock


class Names:
    """Resolves names. Concurrent lookups of one name share one query, which continues if a caller is cancelled."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve or _of_the_system
        self._lookups: dict[tuple[str, int], _Lookup] = {}

    async def addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """Return at least one address. Raises OSError."""
        if (literal := _literal(host, port)) is not None:
            return literal
        key, loop = (host, port), asyncio.get_running_loop()
        lookup = self._lookups.get(key)
        if lookup is None or loop.time() >= lookup.until_s:
            if len(self._lookups) >= NAMES_MAX:
                self._lookups.clear()
            task = loop.create_task(self._ask(key))
            lookup = self._lookups[key] = _Lookup(task, loop.time() + KEPT_SECONDS)
            task.add_done_callback(lambda task: self._answered(key, task))
        try:
            return await asyncio.shield(lookup.task)
        except asyncio.CancelledError:
            if lookup.task.cancelled():
                raise OSError("the session was closed during the lookup") from None
            raise

    def close(self) -> None:
        for lookup in self._lookups.values():
            lookup.task.cancel()

    async def _ask(self, key: tuple[str, int]) -> list[AddrInfoType]:
        try:
            found = await self._resolve(*key)
        except UnicodeError as error:
            raise OSError("it is not a valid host name") from error
        except RuntimeError as error:  # no thread could be started
            raise OSError(errno.ENOMEM, str(error)) from error
        if not found:
            raise OSError("it has no address")
        return found

    def _answered(self, key: tuple[str, int], task: "asyncio.Task[list[AddrInfoType]]") -> None:
        if task.cancelled() or task.exception() is not None:
            lookup = self._lookups.get(key)
            if lookup is not None and lookup.task is task:
                del self._lookups[key]


async def _of_the_system(host: str, port: int) -> list[AddrInfoType]:
    loop, configured = asyncio.get_running_loop(), socket.AI_ADDRCONFIG
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=configured)
    return cast(list[AddrInfoType], found)


def _literal(host: str, port: int) -> list[AddrInfoType] | None:
    if not host[-1:].isdigit() and ":" not in host:
        return None
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        return None
    return cast(list[AddrInfoType], found)
