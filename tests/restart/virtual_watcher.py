"""One run of the watcher in virtual time: the real wiring from the scrape to the hook, on a real state folder.

It begins, reloads, stops and dies as the daemon does, without a port and without people's pages.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.restart.virtual import InlineWorker, Loop
from vllm_watch.board.board import Board
from vllm_watch.config import Config
from vllm_watch.detectors.base import Around
from vllm_watch.incidents.fleet import Fleet
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.restart.restarts import Restarts
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.incidents import IncidentTable
from vllm_watch.state.journal import Journal
from vllm_watch.watch.host_watch import HostWatch
from vllm_watch.watch.memory import Memory
from vllm_watch.watch.publishing import Publisher
from vllm_watch.watch.target_loop import TargetLoops
from vllm_watch.watch.watch import NOTHING_AROUND

if TYPE_CHECKING:
    from tests.restart.virtual_site import Site


class Written(Journal):
    """The real one; each row of an attempt is a moment to be killed at."""

    def __init__(self, worker: InlineWorker, site: "Site") -> None:
        super().__init__(worker)
        self._site = site

    async def write(self, attempt: Attempt) -> None:
        await self._site.point(f"before {attempt.state} is written")
        await super().write(attempt)
        await self._site.written(attempt)
        await self._site.point(f"{attempt.state} is written")


class Nothing:
    """A host without GPUs, and a recorder that keeps nothing."""

    gpus = None

    @property
    def watch(self) -> "Nothing":
        return self

    def concerning(self, _: str) -> tuple[()]:
        return ()

    def around(self, _: str) -> Around:
        return NOTHING_AROUND

    def observe(self, *_: object) -> None:
        pass

    forget = name_url = observe

    def parts(self, _: str) -> dict[str, Any]:
        return {}


class Watcher:
    """One process."""

    def __init__(self, site: "Site", folder: Path) -> None:
        self._site = site
        self.loop = Loop()
        self._closed = False
        self.config: Config = site.config
        self.board = Board()
        self.worker = InlineWorker(folder, lambda *_: None)
        table = IncidentTable(self.worker)
        self.journal = Written(self.worker, site)
        self._memory = Memory(table, self.board)
        publisher: Any = Publisher(
            self.board, Fleet(), Nothing(), self._memory, (self,)  # type: ignore[arg-type]
        )  # fmt: skip
        self.publisher = publisher
        self.loops = TargetLoops(self.config, self.board, Nothing(), self._memory, publisher)  # type: ignore[arg-type]
        self.loops.host = Nothing()  # type: ignore[assignment]
        self.loops.session = Nothing()  # type: ignore[assignment]
        self.restarts = Restarts(self.config, self.board, Nothing(), self.journal)

    @property
    def dead(self) -> bool:
        return self.loop.killed

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the work returns; None where the process was killed meanwhile."""
        try:
            return self.loop.run_until_complete(work)
        except RuntimeError:
            if not self.loop.killed:
                raise
            return None
        finally:
            if self.loop.killed:
                self.bury()

    def bury(self) -> None:
        self.loop.bury()
        if not self._closed:
            self.worker.connection.release()

    async def start(self) -> None:
        """As Daemon.start does."""
        await self._memory.open()
        self.publisher.open(HostWatch("localhost"))
        await self.restarts.open()
        self._follow()
        await self.restarts.start()

    async def stop(self) -> None:
        """As Daemon.run does on SIGTERM."""
        await self.restarts.let_hooks_end()
        tasks = self.loops.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self.restarts.stop(), return_exceptions=True)
        self.loops.close()
        await self.worker.close()
        self._closed = True

    async def reload(self, config: Config) -> None:
        """As Daemon.reload does."""
        self.config = config
        self.restarts.configure(config)
        self._follow()
        await self.restarts.start()

    def _follow(self) -> None:
        targets = self.config.targets
        self.loops.follow(self.config, targets)
        self.restarts.follow((each.identity(), self.config.restart_for(each)) for each in targets)

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        self._site.told(events)
        self.restarts.saw(target, events)
