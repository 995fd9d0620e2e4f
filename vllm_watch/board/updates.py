"""Collect changes of the board until a listener reads them."""

import asyncio
from dataclasses import dataclass
from typing import Literal, get_args

from vllm_watch.errors import WatchError

LISTENERS_MAX = 64  # each needs a socket, and is served at every change


class TooManyListenersError(WatchError):
    """Too many status pages are open."""


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes since the last read, sorted by name."""

    targets: list[str]  # added or updated
    gone: list[str]
    incidents: list[str]  # opened, changed or ended
    gpus: bool


What = Literal["targets", "gone", "incidents", "gpus"]
_OPPOSITE: dict[What, What] = {"targets": "gone", "gone": "targets"}


class Updates:
    """The changes that one listener has not read yet."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.urgent = asyncio.Event()
        self._names: dict[What, set[str]] = {what: set() for what in get_args(What)}
        self._marked = asyncio.Event()

    async def wait(self) -> None:
        await self._marked.wait()

    def close(self) -> None:
        self.closed.set()
        self.urgent.set()
        self._marked.set()

    def mark(self, what: What, name: str = "", *, urgent: bool = False) -> None:
        """Mark a target, an incident or the GPUs, which have no name."""
        if urgent:
            self.urgent.set()
        self._names[what].add(name)
        if what in _OPPOSITE:
            self._names[_OPPOSITE[what]].discard(name)
        self._marked.set()

    def take(self) -> Changes:
        found = {what: sorted(names) for what, names in self._names.items()}
        for names in self._names.values():
            names.clear()
        self._marked.clear()
        if not self.closed.is_set():
            self.urgent.clear()
        return Changes(
            found["targets"], found["gone"], found["incidents"], gpus=bool(found["gpus"])
        )


class Listeners:
    """All listeners."""

    def __init__(self) -> None:
        self._all: set[Updates] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Updates:
        """Raises TooManyListenersError."""
        if len(self._all) >= LISTENERS_MAX:
            raise TooManyListenersError(
                f"{len(self._all)} pages already listen to live updates, the limit is {LISTENERS_MAX}",
                "Close some of them, or read /api/v1/status at your own pace",
            )
        updates = Updates()
        self._all.add(updates)
        return updates

    def remove(self, updates: Updates) -> None:
        self._all.discard(updates)

    def close(self) -> None:
        for updates in self._all:
            updates.close()

    def mark(self, what: What, name: str = "", *, urgent: bool = False) -> None:
        for updates in self._all:
            updates.mark(what, name, urgent=urgent)
