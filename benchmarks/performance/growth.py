"""Does it grow? Twenty targets through 24 simulated hours, and a thousand through 20 real minutes."""

import asyncio
import time
from pathlib import Path

from benchmarks.engines import bodies
from benchmarks.performance import processes
from benchmarks.performance.row import Row
from vllm_watch.board.board import Board
from vllm_watch.samples.observation import Call, Observation
from vllm_watch.samples.target import Target
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.reading import Reader
from vllm_watch.watch.watch import Watch

HOURS, FEW, INTERVAL_SECONDS = 24, 20, 5.0
MANY, MINUTES, WARM_MINUTES = 1000, 20, 12  # recordings reach back ten minutes, and a tenth more
GROWTH_MAX = 0.02  # of the memory after warm-up: less than what malloc itself moves by
MEMORY_MAX_MB = 400.0
BODIES = 400


def rows() -> list[Row]:
    """All of this subject."""
    few, (warm, end) = asyncio.run(_simulated()), _real()
    return [
        Row(f"memory after {HOURS} simulated hours of {FEW} targets ÷ memory after 2 hours", few, "", 1 + GROWTH_MAX),
        Row(f"memory after {MINUTES} minutes of {MANY} targets", end / 1e6, "MB", MEMORY_MAX_MB),
        Row(f"the same ÷ memory after {WARM_MINUTES} minutes", end / warm, "", 1 + GROWTH_MAX),
    ]  # fmt: skip


async def _simulated() -> float:
    """Everything that keeps something of a target, shown one look after another."""
    recorder, board = FlightRecorder(), Board(window_seconds=60.0)
    texts, names = bodies(BODIES), [f"t{number}" for number in range(FEW)]
    readers, watches = {name: Reader() for name in names}, {name: Watch(name) for name in names}
    for name in names:
        board.add_target(Target(name=name, url=f"http://{name}"), INTERVAL_SECONDS)
    call = Call(outcome="ok", status=200, latency_s=0.004)
    warm = 0
    for look in range(int(HOURS * 3600 / INTERVAL_SECONDS)):
        for name in names:
            text, at_s = texts[look % BODIES], look * INTERVAL_SECONDS
            seen = Observation(t=1.7e9 + at_s, monotonic_s=at_s, target=name, scrape=call, health=call,
                               reading=readers[name].read(text))  # fmt: skip
            events = watches[name].observe(seen)
            recorder.observe(seen, text, readers[name].lines)
            signals = watches[name].signals
            assert signals is not None
            board.publish(signals, events=events, late_seconds=0.0)
        await asyncio.sleep(0)
        if look == int(2 * 3600 / INTERVAL_SECONDS):
            warm = processes.rss_bytes(_own_pid())
    grown = processes.rss_bytes(_own_pid()) / warm
    await recorder.close()
    return grown


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


def _real() -> tuple[int, int]:
    """Bytes once recordings and windows are full, and at the end."""
    with processes.engines() as url, processes.watcher(url, MANY, INTERVAL_SECONDS) as watcher:
        time.sleep(WARM_MINUTES * 60)
        warm = processes.rss_bytes(watcher.pid)
        time.sleep((MINUTES - WARM_MINUTES) * 60)
        return warm, processes.rss_bytes(watcher.pid)
