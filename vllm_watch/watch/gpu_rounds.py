"""The GPUs of this host, polled once for all targets: shown, judged, kept, and handed to each look."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from vllm_watch.config import Config
from vllm_watch.export.board import Board
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.recent_xids import RecentXids
from vllm_watch.sources import trace_gpus
from vllm_watch.sources.flight_recorder import FlightRecorder

_log = structlog.get_logger()


class GpuSource(Protocol):
    """What polls the GPUs: NVML, or the lab's simulated ones."""

    async def read(self) -> GpuReading:
        """Poll all GPUs once; never raises for anything the driver does."""

    async def close(self) -> None:
        """End what runs in the background."""


class GpuRounds:
    """Polls at its own pace. `serves` says whether an engine on this host answers."""

    def __init__(
        self,
        config: Config,
        make_source: Callable[[GpuSettings, Config], GpuSource],
        board: Board,
        recorder: FlightRecorder,
        serves: Callable[[], bool],
    ) -> None:
        self._config = config
        self._make_source = make_source
        self._source = make_source(config.gpu, config)
        self._board = board
        self._recorder = recorder
        self._serves = serves
        self._holders = HolderJudge()
        self._xids = RecentXids()
        self.now: tuple[GpuSample, ...] | None = None  # as last polled

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            began_s = time.monotonic()
            try:
                self._publish(await self._source.read())
            except Exception:  # noqa: BLE001 - the engines go on being watched
                _log.exception("gpu_poll_failed")
            left = self._config.gpu.interval_seconds - (time.monotonic() - began_s)
            await asyncio.sleep(max(0.1, left))

    async def configure(self, config: Config) -> None:
        """Change to another configuration."""
        old, self._config = self._config, config
        if config.gpu == old.gpu:
            return
        await self._source.close()
        self._source = self._make_source(config.gpu, config)
        # Switched off, it would grow older and older, as if it had failed.
        self._board.host_sources.pop("nvml", None)
        self.now = None

    async def close(self) -> None:
        """End what the source runs in the background."""
        await self._source.close()

    def _publish(self, reading: GpuReading) -> None:
        if self._config.gpu.enabled == "off":
            return
        self._board.call("nvml", "", reading.status, reading.duration_s, reading.t)
        now_s, gpus = time.monotonic(), reading.gpus
        served = self._serves()
        judged = () if gpus is None else self._holders.look(now_s, reading.t, gpus, served=served)
        self._board.publish_gpus(reading, judged)
        # The board counts what was told now; targets look at their own pace, and must not miss it.
        standing = self._xids.look(now_s, reading)
        self._recorder.observe_gpus(standing)
        self.now = trace_gpus.known(standing)
