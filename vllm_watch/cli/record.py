"""Record a server's scrapes."""

import argparse
import asyncio
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_watch import config as configuration
from vllm_watch.cli.helpers import exit_status, options
from vllm_watch.samples.observation import Call
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import GpuSettings, ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.cpu_waits import CpuWaits
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.sources.recording import Writer
from vllm_watch.sources.trace_line import to_line
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.support import logs
from vllm_watch.support.waiting import happens

HELP = """\
Record a server's answers and this host's GPUs to a trace file, until Ctrl-C or for a given time. A
server that does not answer is recorded too. The file grows to 256 MiB (about ten hours at one scrape
per second); from then on the older half is dropped whenever it is full.

examples:
  vllm-watch record --target http://127.0.0.1:8000 --out today.jsonl.gz
  vllm-watch record --target http://10.0.0.7:8000 --out slow.jsonl.gz --interval 5 --duration 600
  vllm-watch replay today.jsonl.gz"""

_INTERVAL_SECONDS = 1.0
_INTERVAL_SECONDS_MIN = 0.1  # shorter intervals would load the server
_FILE_BYTES_MAX = 256 << 20
_seconds = options.number(
    lambda value: _INTERVAL_SECONDS_MIN <= value < float("inf"),
    "is not a number of seconds\n→ write seconds, 0.1 or more: 5",
    "write seconds, 0.1 or more: 5",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", metavar="URL", required=True, help="base URL of the vLLM server")
    add("--out", metavar="FILE", type=Path, required=True, help="a new .jsonl.gz file")
    add("--interval", metavar="S", type=_seconds, default=_INTERVAL_SECONDS,
        help="seconds between scrapes (default 1)")  # fmt: skip
    add("--duration", metavar="S", type=_seconds, help="seconds until it ends (default: at Ctrl-C)")
    options.add_engine_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    tls = options.engine_tls(arguments)
    config = configuration.load(None, environ={}, targets=[arguments.target], tls=tls)
    logs.configure("warning")
    settings = ScrapeSettings(
        interval_seconds=arguments.interval,
        health_interval_seconds=arguments.interval,
        connect_timeout_seconds=_CONNECT_TIMEOUT_SECONDS,
        timeout_seconds=_TIMEOUT_SECONDS,
        tls_config=config.scrape.tls_config,
    )
    with Writer(arguments.out, bytes_max=_FILE_BYTES_MAX) as writer:
        target, is_live = config.targets[0].identity(), sys.stderr.isatty()
        asyncio.run(_Recording(target, settings, writer, is_live).run(arguments.duration))
    return exit_status.FINE


# The daemon's defaults, because detectors use the recorded response times.
_CONNECT_TIMEOUT_SECONDS = 2.0
_TIMEOUT_SECONDS = 4.0
_GPU_DEADLINE_SECONDS_MAX = 4.0  # a hung driver must not delay scrapes


@dataclass(slots=True)
class _Recording:
    target: Target
    settings: ScrapeSettings
    writer: Writer
    is_live: bool
    looks: int = 0
    failed: int = 0

    async def run(self, duration_seconds: float | None) -> None:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        interval_seconds = self.settings.interval_seconds
        deadline_seconds = min(interval_seconds, _GPU_DEADLINE_SECONDS_MAX)
        gpus = NvmlSource(GpuSettings(deadline_seconds=deadline_seconds), ProcReader())
        cpu = CpuWaits(self.target.url)
        began = due = time.monotonic()
        end = float("inf") if duration_seconds is None else began + duration_seconds
        try:
            async with http.Session() as session:
                source = VllmSource(self.target, self.settings, session)
                while due < end and not stopping.is_set():
                    await self._look(source, gpus, cpu, began)
                    due = max(due + interval_seconds, time.monotonic())
                    await happens(stopping, max(0.0, min(due, end) - time.monotonic()))
        finally:
            cpu.close()
            await gpus.close()
            if self.is_live:
                sys.stderr.write("\n")

    async def _look(
        self, source: VllmSource, gpus: NvmlSource, cpu: CpuWaits, began: float
    ) -> None:
        look, reading = await asyncio.gather(source.observe(), gpus.read())
        observation = look.observation
        if source.local:
            waits = await cpu.observe(observation)
            observation = replace(observation, gpus=reading.known_gpus, cpu=waits)
        line = to_line(observation, look.body, target=self.target.url)
        await asyncio.to_thread(self.writer.write, line)
        scrape = observation.scrape
        self.looks += 1
        self.failed += scrape.outcome != "ok"
        if self.is_live:
            sys.stderr.write(self._status(scrape, time.monotonic() - began))
            sys.stderr.flush()

    def _status(self, last: Call, seconds: float) -> str:
        hours, minutes = divmod(int(seconds) // 60, 60)
        said = f"{last.latency_s * 1000:.0f} ms" if last.outcome == "ok" else last.outcome
        return (
            f"\r{hours}:{minutes:02}:{int(seconds) % 60:02}  {self.looks} scrapes, "
            f"{self.failed} failed, {self.writer.size_bytes / 1e6:.1f} MB, last: {said}"
            "  (Ctrl-C ends)\x1b[K"
        )
