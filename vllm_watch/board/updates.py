"""Collect changes of the board until a listener reads them."""

import asyncio
from dataclasses import dataclass

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


class Updates:
    """The changes that one listener has not read yet."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.incidents: set[str] = set()
        self.gpus = False
        self.closed = asyncio.Event()
        self.urgent = asyncio.Event()
        self._marked = asyncio.Event()

    async def wait(self) -> None:
        await self._marked.wait()

    def close(self) -> None:
        self.closed.set()
        self.urgent.set()
        self._marked.set()

    def mark(
        self,
        *,
        changed: str | None = None,
        gone: str | None = None,
        incident: str | None = None,
        urgent: bool = False,
    ) -> None:
        """Without arguments, mark a new GPU reading."""
        if urgent:
            self.urgent.set()
        if changed is not None:
            self.changed.add(changed)
            self.gone.discard(changed)
        elif gone is not None:
            self.gone.add(gone)
            self.changed.discard(gone)
        elif incident is not None:
            self.incidents.add(incident)
        else:
            self.gpus = True
        self._marked.set()

    def take(self) -> Changes:
        taken = Changes(
            sorted(self.changed), sorted(self.gone), sorted(self.incidents), gpus=self.gpus
        )
        self.changed.clear()
        self.gone.clear()
        self.incidents.clear()
        self.gpus = False
        self._marked.clear()
        if not self.closed.is_set():
            self.urgent.clear()
        return taken


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

    def mark(
        self,
        *,
        changed: str | None = None,
        gone: str | None = None,
        incident: str | None = None,
        urgent: bool = False,
    ) -> None:
        for updates in self._all:
            updates.mark(changed=changed, gone=gone, incident=incident, urgent=urgent)
