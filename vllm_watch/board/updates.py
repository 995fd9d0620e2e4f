"""What changed on the board since a listener last looked.

A listener holds sets of names, not a queue of events: however slow it is, what waits for it is at
most one mark per target and per incident, and it always gets the newest state of each.
"""

import asyncio
from dataclasses import dataclass

from vllm_watch.errors import WatchError

LISTENERS_MAX = 64  # pages open at once; each costs a socket and its share of every publish


class TooManyListenersError(WatchError):
    """More pages are open than one watcher serves."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed between two looks of a listener, each list in order of name."""

    targets: list[str]  # added, or with new results
    gone: list[str]  # targets that were removed
    incidents: list[str]  # ids: opened, changed or ended
    gpus: bool  # is there a new reading of the GPUs?


class Updates:
    """One listener's marks. `wait` returns when there are any."""

    def __init__(self) -> None:
        self.changed: set[str] = set()  # names of targets that were added or have new results
        self.gone: set[str] = set()  # names of targets that were removed
        self.incidents: set[str] = set()  # ids of incidents that were opened, changed or ended
        self.gpus = False  # is there a new reading of the GPUs?
        self.closed = asyncio.Event()  # set when the server stops
        self.urgent = asyncio.Event()  # set while something waits that nobody should wait for
        self._marked = asyncio.Event()

    async def wait(self) -> None:
        """Return as soon as something changed, or the listener is closed."""
        await self._marked.wait()

    def close(self) -> None:
        """End the listener's wait for good."""
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
        """Note a target's change or end, or an incident's; without any, a new reading of the GPUs."""
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
        """What changed until now; the marks are then clear."""
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
    """Everyone who listens now, at most LISTENERS_MAX."""

    def __init__(self) -> None:
        self._all: set[Updates] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Updates:
        """Begin to listen. Raises TooManyListenersError."""
        if len(self._all) >= LISTENERS_MAX:
            raise TooManyListenersError(
                f"{len(self._all)} pages already listen to live updates, the limit is {LISTENERS_MAX}",
                "Close some of them, or read /api/v1/status at your own pace",
            )
        updates = Updates()
        self._all.add(updates)
        return updates

    def remove(self, updates: Updates) -> None:
        """Stop listening."""
        self._all.discard(updates)

    def close(self) -> None:
        """Close all of them, because the server stops."""
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
        """Tell all of them; see Updates.mark."""
        for updates in self._all:
            updates.mark(changed=changed, gone=gone, incident=incident, urgent=urgent)
