"""Connect the board's results with the notifiers."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from vllm_watch.board.board import Board
from vllm_watch.board.health import NotifierHealth
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.notify import kinds
from vllm_watch.notify.base import Tools
from vllm_watch.notify.board_alerts import BoardAlerts
from vllm_watch.notify.delivery import Delivery
from vllm_watch.notify.kubernetes_events import Events
from vllm_watch.notify.ledger import Ledger
from vllm_watch.settings.notifications import AnyNotifier, KubernetesEvents, NotificationsSettings
from vllm_watch.support.waiting import happens

_log = structlog.get_logger()

LOOK_SECONDS = 5.0
"""Interval between reads of the board."""

SETTLE_SECONDS = 0.2
"""Events within this time cause only one read."""

PRUNE_SECONDS = 3600.0

STOP_SECONDS = 2.0
"""Seconds to wait at exit for a message in flight. The next run repeats an unfinished message."""


@dataclass(slots=True)
class _Running:
    made_of: tuple[object, ...]
    sink: Delivery | Events
    task: asyncio.Task[None]


class Notifications:
    """Runs all notifiers."""

    def __init__(
        self,
        settings: NotificationsSettings,
        board: Board,
        silenced: Callable[[str], bool],
        ledger: Ledger,
        tools: Tools | None = None,
    ) -> None:
        self._settings = settings
        self._board = board
        self._alerts = BoardAlerts(board, silenced, settings.unreadable_seconds)
        self._ledger = ledger
        self._tools = tools or Tools()
        self._running: dict[str, _Running] = {}
        self._pruned_s = time.monotonic()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._ledger.open()
        await self.configure(self._settings)
        self._task = asyncio.create_task(self._run(), name="notifications")

    async def configure(self, settings: NotificationsSettings) -> None:
        self._settings = settings
        self._alerts.unreadable_seconds = settings.unreadable_seconds
        wanted = {name: _made_of(each, settings) for _, name, each in settings.each()}
        changed = [n for n, old in self._running.items() if old.made_of != wanted.get(n)]
        await self._end(*(self._running.pop(name) for name in changed))
        for name in self._board.notifiers.keys() - wanted:
            del self._board.notifiers[name]
        for kind, name, each in settings.each():
            if name not in self._running:
                known = self._board.notifiers.get(name)
                if known is None or known.kind != kind:
                    known = self._board.notifiers[name] = NotifierHealth(kind)
                self._begin(name, each, known)
        await asyncio.to_thread(self._check)

    def _begin(self, name: str, settings: AnyNotifier, health: NotifierHealth) -> None:
        sink: Delivery | Events
        if isinstance(settings, KubernetesEvents):
            sink = Events(settings, self._tools, health)
        else:
            notifier = kinds.make(settings, self._tools)
            sink = Delivery(settings, notifier, self._ledger, self._settings, health)
            health.queue = sink.queue
        task = asyncio.create_task(sink.run(), name=f"notify {name}")
        self._running[name] = _Running(_made_of(settings, self._settings), sink, task)

    def _check(self) -> None:
        for kind, name, settings in self._settings.each():
            for finding in kinds.check(settings, self._tools):
                if not finding.ok:
                    _log.error(
                        "notifier_unusable", notifier=name, kind=kind, cause=finding.text,
                        remedy=finding.remedy,
                    )  # fmt: skip

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end(*self._running.values())
        await self._ledger.flush()

    async def _end(self, *running: _Running) -> None:
        for each in running:
            each.task.cancel()
        if running:
            await asyncio.wait([each.task for each in running], timeout=STOP_SECONDS)

    def saw(self, events: Sequence[IncidentEvent]) -> None:
        for event in events:
            names = (event.incident.target, *event.incident.concerns)
            targets = [self._board.targets[n].target for n in names if n in self._board.targets]
            for running in self._running.values():
                if isinstance(running.sink, Events):
                    running.sink.put(event, targets)
            self._woken.set()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                self._look()
            except Exception:  # noqa: BLE001 - the next read may succeed
                _log.exception("notifications_not_looked")
            await asyncio.sleep(SETTLE_SECONDS)
            await happens(self._woken, LOOK_SECONDS)

    def _look(self) -> None:
        now_t = time.time()
        lasting = {name: self._ledger.lasting(name) for name in self._running}
        alerts = self._alerts.now(alert for known in lasting.values() for alert in known)
        here = {each.id for each in alerts}
        for name, running in self._running.items():
            gone = (self._alerts.ended(each) for each in lasting[name] if each.id not in here)
            if isinstance(running.sink, Delivery):
                running.sink.offer((*alerts, *(each for each in gone if each is not None)), now_t)
        if time.monotonic() - self._pruned_s >= PRUNE_SECONDS:
            self._pruned_s = time.monotonic()
            self._ledger.prune(here, self._running, now_t)


def _made_of(one: AnyNotifier, links: NotificationsSettings) -> tuple[object, ...]:
    urls = () if isinstance(one, KubernetesEvents) else (links.page_url, links.runbooks_url)
    return one, *urls
