"""Joins what is shown and who is told: the board's matters go to the notifiers, their health goes to the board.

Loaded and started only where a configuration names a notifier.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.health import NotifierHealth
from vllm_watch.config import Config
from vllm_watch.incidents.incident import IncidentEvent, published

if TYPE_CHECKING:
    from vllm_watch.notify.courier import News
    from vllm_watch.notify.facts import Facts
    from vllm_watch.notify.matter import Matter
    from vllm_watch.notify.post_office import PostOffice

_log = structlog.get_logger()

LOOK_SECONDS = 5.0
"""From one look at the board to the next where nothing happens; an incident's event is looked at at once."""

SETTLE_SECONDS = 0.2
"""Several events at once are one look."""

STEPS_MAX = 10_000
"""Steps of restarts that are remembered as written to the streams."""


class Notifying:
    """One daemon's notifications, from `start` to `stop`."""

    def __init__(
        self, config: Config, board: Board, silenced: Callable[[str], bool],
        is_ours: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`is_ours`: is the state folder held for this process?"""
        self._config = config
        self._board = board
        self._silenced = silenced
        self._is_ours = is_ours
        self._office: PostOffice | None = None
        self._facts: Facts | None = None
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._began_t = time.time()
        self._streamed: dict[str, None] = {}  # ids of steps

    async def start(self) -> None:
        """Begin, where there is anybody to tell; the targets must be known."""
        if self._office is None and self._config.notifications.each():
            await self._open()

    async def configure(self, config: Config) -> None:
        """Tell these from now on."""
        self._config = config
        if self._office is None or self._facts is None:
            await self.start()
            return
        self._facts.unreadable_seconds = config.notifications.unreadable_seconds
        await self._office.configure(config.notifications)
        names = {name for _, name, _ in config.notifications.each()}
        for gone in self._board.notifiers.keys() - names:
            del self._board.notifiers[gone]

    async def stop(self) -> None:
        """End it soon; what waits is told by the next run."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._office is not None:
            await self._office.stop()

    async def _open(self) -> None:
        from vllm_watch.notify.facts import Facts  # noqa: PLC0415 - not without a notifier
        from vllm_watch.notify.post_office import PostOffice  # noqa: PLC0415

        settings = self._config.notifications
        self._facts = Facts(self._board, self._silenced, settings.unreadable_seconds)
        self._office = PostOffice(settings, self._tell, self._config.state_dir, self._is_ours)
        await self._office.open()
        self._task = asyncio.create_task(self._run(), name="notifications")

    def saw(self, _: str, events: Sequence[IncidentEvent]) -> None:
        """Something was told of incidents: write it to the streams, and look at the board soon."""
        if self._office is None:
            return
        for event in events:
            self._office.stream(published(event))
            self._woken.set()

    def _tell(self, name: str, news: "News") -> None:
        health = self._board.notifiers.get(name)
        if health is None:
            kinds = {n: kind for kind, n, _ in self._config.notifications.each()}
            health = self._board.notifiers[name] = NotifierHealth(kinds.get(name, ""))
        health.count(news.outcome, news.number, news.queue, news.because, news.t)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                self._look()
            except Exception:  # noqa: BLE001 - what cannot be told now may be at the next look
                _log.exception("notifications_not_looked")
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _look(self) -> None:
        assert self._office is not None  # noqa: S101 - started by _open
        assert self._facts is not None  # noqa: S101
        found = self._facts.matters(self._office.lasting)
        self._office.offer(found, self._facts.ended)
        self._stream_steps(found)

    def _stream_steps(self, found: "Iterable[Matter]") -> None:
        assert self._office is not None  # noqa: S101
        for matter in found:
            if matter.about != "restart" or matter.id in self._streamed:
                continue
            self._streamed[matter.id] = None
            while len(self._streamed) > STEPS_MAX:
                del self._streamed[next(iter(self._streamed))]
            if matter.t >= self._began_t:  # else an earlier run has written it
                self._office.stream({
                    "t": matter.t, "event": "restart", "id": matter.id, "target": matter.target,
                    "step": matter.cause, "severity": matter.severity, "summary": matter.summary,
                    "incident_id": next((e.removeprefix("incident ") for e in matter.evidence), None),
                })  # fmt: skip
