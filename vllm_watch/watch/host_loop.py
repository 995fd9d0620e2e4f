"""The GPU loop of this host: poll, judge, publish and record."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from vllm_watch.board.board import Board, Looked
from vllm_watch.config import Config
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.signals.xid import RecentXids
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.watch.host_watch import HostWatch, ServerScrape
from vllm_watch.watch.publishing import Publisher

_log = structlog.get_logger()


class GpuSource(Protocol):
    """Polls the GPUs, real or simulated."""

    async def read(self) -> GpuReading:
        """Poll all GPUs once. Does not raise for driver errors."""

    async def close(self) -> None:
        """Stop background work."""


@dataclass(slots=True, eq=False)
class HostLoop:
    """Polls the GPUs at its own interval. `servers` returns the last scrapes of this host's servers."""

    config: Config
    make_source: Callable[[GpuSettings, Config], GpuSource]
    watch: HostWatch
    board: Board
    recorder: FlightRecorder
    publisher: Publisher
    servers: Callable[[], Mapping[str, ServerScrape]]
    gpus: tuple[GpuSample, ...] | None = field(default=None, init=False)
    _xids: RecentXids = field(default_factory=RecentXids, init=False)
    _source: GpuSource = field(init=False)

    def __post_init__(self) -> None:
        self._source = self.make_source(self.config.gpu, self.config)

    async def run(self) -> None:
        while True:
            looked = Looked.now()
            try:
                self._take(await self._source.read(), looked)
            except Exception:  # noqa: BLE001 - the engines must still be watched
                _log.exception("gpu_poll_failed")
            left = self.config.gpu.interval_seconds - (time.monotonic() - looked.monotonic_s)
            await asyncio.sleep(max(0.1, left))

    async def configure(self, config: Config) -> None:
        old, self.config = self.config, config
        if config.gpu == old.gpu:
            return
        await self._source.close()
        self._source = self.make_source(config.gpu, config)
        # Without this, a disabled source would be shown as stale.
        self.board.host_sources.pop("nvml", None)
        self.gpus = None
        if config.gpu.enabled == "off":
            self.publisher.end_host(self.watch)

    async def close(self) -> None:
        await self._source.close()

    def _take(self, reading: GpuReading, looked: Looked) -> None:
        if self.config.gpu.enabled == "off":
            return
        self.board.call("nvml", "", reading.status, reading.duration_s, reading.t)
        # The board counts this poll's new Xid errors, but detectors need them for longer.
        standing = self._xids.look(time.monotonic(), reading)
        gpus = standing.known_gpus
        events = []
        if gpus is not None:
            events = self.watch.look(reading.t, time.monotonic(), gpus, self.servers())
        interval_s = self.config.gpu.interval_seconds
        self.publisher.host(reading, self.watch, events, looked.ended(interval_s, interval_s))
        self.recorder.observe_gpus(standing)
        self.gpus = gpus
        for slug, error in self.watch.new_failures().items():
            _log.error("detector_failed", target=self.watch.target, detector=slug, error=error)
