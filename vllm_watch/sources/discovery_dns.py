"""Targets from DNS: every address of a name, looked up by the system's own resolver.

A and AAAA only: SRV needs a DNS library, which no other part needs. Where a name has IPv4 addresses
its IPv6 ones are not taken, or a server with both would be watched twice.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from vllm_watch.settings.target import DnsDiscovery, TargetConfig
from vllm_watch.support import threads

Resolve = Callable[[str, int], Sequence[tuple[Any, ...]]]  # as socket.getaddrinfo answers

_LOOKUP_SECONDS_MAX = 5.0  # as long as the resolver waits for its first server
# An outage of DNS says nothing about the servers: they are watched at their last addresses meanwhile.
_OUTAGE_SECONDS_MAX = 600.0
# An answer without an address may be a partial one, or a server that is just not ready.
_LOOKS_ABSENT_MAX = 2
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def resolve(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    """Ask the system's resolver. Blocks, on some systems for half a minute."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class DnsTargets:
    """The addresses of one name, and what is remembered of them."""

    def __init__(self, settings: DnsDiscovery, resolve: Resolve = resolve) -> None:
        self.settings = settings
        self.problem: str | None = None
        self._resolve = resolve
        self._lookup: asyncio.Future[Sequence[tuple[Any, ...]]] | None = None
        self._looks_absent: dict[str, int] = {}  # address → good answers in a row without it
        self._answered_s: float | None = None  # monotonic time of the last good answer

    async def read(self, now_s: float) -> list[TargetConfig]:
        """Return the targets of all addresses that are believed in; takes at most five seconds."""
        try:
            self._learn(await self._addresses(), now_s)
            self.problem = None
        except OSError as error:
            if isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME:
                self._learn(set(), now_s)
                self.problem = "has no address"
            else:
                self._outlast(error, now_s)
        return [self._target(address) for address in sorted(self._looks_absent)]

    async def _addresses(self) -> set[str]:
        # A lookup cannot be cancelled: one that hangs is waited for again, not joined by more.
        if self._lookup is None:
            self._lookup = self._start()
        done, _ = await asyncio.wait({self._lookup}, timeout=_LOOKUP_SECONDS_MAX)
        if not done:
            raise TimeoutError(f"no answer within {_LOOKUP_SECONDS_MAX:g} seconds")
        finished, self._lookup = self._lookup, None
        answers = finished.result()
        families = {answer[0] for answer in answers}
        family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
        found = {str(answer[4][0]) for answer in answers if answer[0] == family}
        return {address for address in found if "%" not in address}  # link-local needs an interface

    def _start(self) -> asyncio.Future[Sequence[tuple[Any, ...]]]:
        # A thread of its own, and a daemon: the loop's executor is joined at exit, and would hold
        # up the end of the process for as long as the resolver hangs.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[tuple[Any, ...]]] = loop.create_future()

        def settle(answers: Sequence[tuple[Any, ...]], error: OSError | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(answers)
            else:
                future.set_exception(error)

        def look_up() -> None:
            answers: Sequence[tuple[Any, ...]] = ()
            failure: OSError | None = None
            try:
                answers = self._resolve(self.settings.host, self.settings.port)
            except OSError as error:
                failure = error
            except UnicodeError:  # a label that is empty or too long
                failure = socket.gaierror(socket.EAI_NONAME, "not a host name")
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, answers, failure)

        if not threads.begin(look_up):
            future.set_exception(OSError("no thread can be started to ask in"))
        return future

    def _learn(self, addresses: set[str], now_s: float) -> None:
        self._answered_s = now_s
        absent = {
            address: looks + 1
            for address, looks in self._looks_absent.items()
            if address not in addresses and looks + 1 < _LOOKS_ABSENT_MAX
        }
        self._looks_absent = absent | dict.fromkeys(addresses, 0)

    def _outlast(self, error: OSError, now_s: float) -> None:
        self.problem = f"cannot be looked up: {error.strerror or error}"
        if self._answered_s is not None and now_s - self._answered_s > _OUTAGE_SECONDS_MAX:
            self._looks_absent = {}
        if self._looks_absent:
            self.problem += f"; its last addresses ({len(self._looks_absent)}) are kept"

    def _target(self, address: str) -> TargetConfig:
        host = f"[{address}]" if ":" in address else address
        return TargetConfig(
            url=f"http://{host}:{self.settings.port}",
            group=self.settings.group or self.settings.host,
            namespace=self.settings.namespace,
        )
