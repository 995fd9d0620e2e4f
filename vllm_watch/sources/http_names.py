"""Which addresses a host has: asked of the system's resolver in a thread, and remembered for a while."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple, cast

from aiohappyeyeballs import AddrInfoType

KEPT_SECONDS = 30.0
"""A pod that is replaced gets another address; and most servers are asked more often than this."""

NAMES_MAX = 1000
"""Remembered at once; beyond, they are asked for anew."""

Resolve = Callable[[str, int], Awaitable[list[AddrInfoType]]]


class _Asked(NamedTuple):
    answer: "asyncio.Task[list[AddrInfoType]]"
    until_s: float  # of the loop's clock


class Names:
    """Remembers; questions for one name at one time are one question, and none is lost with who asked it."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve or _of_the_system
        self._asked: dict[tuple[str, int], _Asked] = {}

    async def addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """At least one. Raises OSError."""
        if (literal := _literal(host, port)) is not None:
            return literal
        key, loop = (host, port), asyncio.get_running_loop()
        asked = self._asked.get(key)
        if asked is None or loop.time() >= asked.until_s:
            if len(self._asked) >= NAMES_MAX:
                self._asked.clear()
            answer = loop.create_task(self._ask(key))
            asked = self._asked[key] = _Asked(answer, loop.time() + KEPT_SECONDS)
            answer.add_done_callback(lambda task: self._answered(key, task))
        try:
            return await asyncio.shield(asked.answer)
        except asyncio.CancelledError:
            if asked.answer.cancelled():
                raise OSError("the session was closed while it was asked for") from None
            raise

    def close(self) -> None:
        """Wait for no answer any more."""
        for asked in self._asked.values():
            asked.answer.cancel()

    async def _ask(self, key: tuple[str, int]) -> list[AddrInfoType]:
        try:
            found = await self._resolve(*key)
        except UnicodeError as error:
            raise OSError("it cannot be a name") from error
        except RuntimeError as error:  # no thread can be begun, for want of memory or by a limit
            raise OSError(errno.ENOMEM, str(error)) from error
        if not found:
            raise OSError("it has no address")
        return found

    def _answered(self, key: tuple[str, int], task: "asyncio.Task[list[AddrInfoType]]") -> None:
        """A failure is not remembered: the name server may be back a second later."""
        if task.cancelled() or task.exception() is not None:
            asked = self._asked.get(key)
            if asked is not None and asked.answer is task:
                del self._asked[key]


async def _of_the_system(host: str, port: int) -> list[AddrInfoType]:
    loop, configured = asyncio.get_running_loop(), socket.AI_ADDRCONFIG
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=configured)
    return cast(list[AddrInfoType], found)


def _literal(host: str, port: int) -> list[AddrInfoType] | None:
    """Return what an address in figures means; None for a name. Asks nobody."""
    if not host[-1:].isdigit() and ":" not in host:
        return None
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    except socket.gaierror:
        return None
    return cast(list[AddrInfoType], found)
