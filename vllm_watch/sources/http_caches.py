"""Cache the addresses of host names, and TLS contexts, for connections.

Threads resolve the names, and load trusted CAs and our own certificate from files.
"""

import asyncio
import errno
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import structlog
from aiohappyeyeballs import AddrInfoType

from vllm_watch.settings.tls import TlsConfig, TlsFileError
from vllm_watch.sources import own_trouble

KEPT_SECONDS = 30.0
"""Addresses are cached for at most this many seconds, because a replacement pod has a new address."""

NAMES_MAX = 1000
"""At most this many names are cached. A full cache is cleared."""

Resolve = Callable[[str, int], Awaitable[list[AddrInfoType]]]

REFUSED_SECONDS = 60.0
"""The system's CAs are reloaded at most once in this many seconds. A failed handshake causes a
reload, because the CAs may have been unreadable (no free file descriptor)."""

CHECK_SECONDS = 5.0

CONTEXTS_MAX = 200
"""Maximum number of contexts. A context with the system's CAs takes a megabyte."""

_log = structlog.get_logger()
_Stamp = tuple[tuple[int, int, int] | None, ...]


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


@dataclass(slots=True)
class _Made:
    context: ssl.SSLContext
    stamp: _Stamp  # of the files when they were loaded or found unusable
    made_s: float
    checked_s: float
    checking: "asyncio.Future[ssl.SSLContext] | None" = None


class Trust:
    """Keeps TLS contexts for one event loop; threads load the files."""

    def __init__(self) -> None:
        self._made: dict[TlsConfig, _Made] = {}
        # Threads take this lock, so that a thousand targets load the same files once.
        self._lock = threading.Lock()

    async def context(self, tls: TlsConfig) -> ssl.SSLContext:
        """Return the context for these settings. Raises TlsFileError, or OSError if no thread can be started."""
        made, now_s = self._made.get(tls), time.monotonic()
        try:
            if made is None:
                return await asyncio.to_thread(self._current, tls)
            if tls.files and now_s - made.checked_s >= CHECK_SECONDS:
                # Do not wait: threads may be busy resolving names, and this context still works.
                made.checked_s = now_s
                loop = asyncio.get_running_loop()
                made.checking = loop.run_in_executor(None, self._current, tls)
                made.checking.add_done_callback(lambda check: check.cancelled() or check.exception())  # fmt: skip
        except RuntimeError as error:
            if made is None:
                raise OSError(errno.ENOMEM, str(error)) from error
        return made.context

    def refused(self, tls: TlsConfig) -> None:
        """Reload the system's CAs at the next call, because these files are not checked for changes."""
        made = self._made.get(tls)
        if made is None or tls.ca_file is not None:
            return
        if time.monotonic() - made.made_s >= REFUSED_SECONDS:
            self._made.pop(tls, None)

    def _current(self, tls: TlsConfig) -> ssl.SSLContext:
        with self._lock:
            stamp = tuple(_stamp(file) for file in tls.files)
            known = self._made.get(tls)
            if known is not None and known.stamp == stamp:
                return known.context
            try:
                context = tls.context()
            except TlsFileError as error:
                if known is None:
                    raise
                if own_trouble.of_error(error) is None:
                    # A new certificate may not have its key yet. Keep the old pair until they match.
                    _log.warning("tls_files_not_renewed", cause=str(error), remedy=error.remedy)
                    known.stamp = stamp
                return known.context
            while len(self._made) >= CONTEXTS_MAX:
                self._made.pop(next(iter(self._made)), None)
            now_s = time.monotonic()
            self._made[tls] = _Made(context, stamp, now_s, now_s)
            return context


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    # ctime also shows a change of permissions
    return found.st_ctime_ns, found.st_size, found.st_ino
