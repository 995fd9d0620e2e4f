"""All notifiers of one daemon, from `open` to `stop`: each is shown how things stand, and works by itself."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from vllm_watch.notify import kinds
from vllm_watch.notify.base import Tools
from vllm_watch.notify.courier import Courier, News
from vllm_watch.notify.jsonl import Stream
from vllm_watch.notify.ledger import Ledger
from vllm_watch.notify.matter import Matter
from vllm_watch.notify.words import Links
from vllm_watch.settings.notifications import JsonlStream, NotificationsSettings, ToldSettings
from vllm_watch.state.ledger import Ledger as DiskLedger

_log = structlog.get_logger()

PRUNE_SECONDS = 3600.0

STOP_SECONDS = 2.0
"""How long stopping may wait for a message that is being sent; it is sent again by the next run."""

Tell = Callable[[str, News], None]  # the notifier's name
End = Callable[[Matter], Matter | None]
"""How a matter that somebody was told is open stands now, where it is not open: ended; None: not known."""


@dataclass(slots=True)
class _Running:
    """A notifier at work, and what it was made of."""

    made_of: tuple[object, ...]
    courier: Courier
    task: asyncio.Task[None]


class PostOffice:
    """`tell` is called in the event loop with all news of each notifier."""

    def __init__(
        self, settings: NotificationsSettings, tell: Tell, disk: DiskLedger | None, tools: Tools | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._tell = tell
        self._tools = tools or Tools()
        self._ledger = Ledger(disk)
        self._running: dict[str, _Running] = {}
        self._streams: dict[str, tuple[JsonlStream, Stream]] = {}
        self._pruned_s = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Read who was told what, and begin."""
        self._loop = asyncio.get_running_loop()
        await self._ledger.open()
        await self.configure(self._settings)

    async def configure(self, settings: NotificationsSettings) -> None:
        """Use these from now on; a notifier that stays as it was goes on."""
        self._settings = settings
        links = Links(settings.page_url, settings.runbooks_url)
        wanted: dict[str, ToldSettings] = {}
        streams: dict[str, JsonlStream] = {}
        for _, name, each in settings.each():
            if isinstance(each, JsonlStream):
                streams[name] = each
            else:
                wanted[name] = each
        for name in [
            n for n, old in self._running.items() if old.made_of != (wanted.get(n), links)
        ]:
            await self._end(self._running.pop(name))
        for name, told in wanted.items():
            if name not in self._running:
                self._begin(name, told, links)
        self._set_streams(streams)
        await asyncio.to_thread(self._look)

    def _begin(self, name: str, settings: ToldSettings, links: Links) -> None:
        notifier = kinds.make(settings, self._tools)
        courier = Courier(
            settings, notifier, self._ledger, links, lambda news: self._tell(name, news)
        )
        task = asyncio.create_task(courier.run(), name=f"notify {name}")
        self._running[name] = _Running((settings, links), courier, task)
        self._tell(name, News("", 0, courier.queue, None, time.time()))

    def _set_streams(self, wanted: Mapping[str, JsonlStream]) -> None:
        for name in [n for n, (old, _) in self._streams.items() if wanted.get(n) != old]:
            self._streams.pop(name)[1].close()
        for name, settings in wanted.items():
            if name not in self._streams:
                self._streams[name] = settings, Stream(settings, self._teller(name))
                self._tell(name, News("", 0, 0, None, time.time()))

    def _teller(self, name: str) -> Callable[[News], None]:
        def tell(news: News) -> None:
            assert self._loop is not None  # noqa: S101 - set by open
            try:
                self._loop.call_soon_threadsafe(self._tell, name, news)
            except RuntimeError:  # the loop has ended: nobody listens any more
                return

        return tell

    def _look(self) -> None:
        """Say at once what is wrong with a notifier, and not when somebody should have been told."""
        for kind, name, settings in self._settings.each():
            for finding in kinds.look(settings, self._tools):
                if not finding.ok:
                    _log.error(
                        "notifier_unusable", notifier=name, kind=kind, cause=finding.text,
                        remedy=finding.remedy,
                    )  # fmt: skip

    # --- what is to be told

    def stream(self, event: Mapping[str, Any]) -> None:
        """Write an event wherever all of them are written."""
        for _, stream in self._streams.values():
            stream.put(event)

    @property
    def lasting(self) -> dict[str, Matter]:
        """What somebody was told is open, by id."""
        return {
            each.id: each for name in self._running for each in self._ledger.lasting(name)
        }  # fmt: skip

    def offer(self, open_now: Iterable[Matter], end: End) -> None:
        """This is all that is open, and all steps of restarts that are known."""
        now_t = time.time()
        found = {each.id: each for each in open_now}
        for name, running in self._running.items():
            gone = [each for each in self._ledger.lasting(name) if each.id not in found]
            ended = [over for each in gone if (over := end(each)) is not None]
            running.courier.offer(found.values(), ended, now_t)
        if time.monotonic() - self._pruned_s >= PRUNE_SECONDS:
            self._pruned_s = time.monotonic()
            self._ledger.prune(found, self._running, now_t)

    async def stop(self) -> None:
        """End everything soon; what waits is on the disk."""
        await asyncio.gather(*(self._end(each) for each in self._running.values()))
        self._running.clear()
        streams, self._streams = self._streams, {}
        await asyncio.gather(*(asyncio.to_thread(each.close) for _, each in streams.values()))
        await self._ledger.flush()

    async def _end(self, running: _Running) -> None:
        running.task.cancel()
        await asyncio.wait([running.task], timeout=STOP_SECONDS)
        await running.courier.close()
