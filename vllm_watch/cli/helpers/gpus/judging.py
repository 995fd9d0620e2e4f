"""Judge the processes that hold GPU memory, on this host or in a recording."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.cli.helpers import terminal
from vllm_watch.cli.helpers.gpus import table as gpus_table
from vllm_watch.cli.helpers.gpus.report import report
from vllm_watch.errors import WatchError
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.settings.stages import GpuSettings, LogSettings
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import GpuHolders, Limits
from vllm_watch.signals.timeline import Timeline
from vllm_watch.sources import recording
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import logs

LOOKS, LOOK_SECONDS = 5, 1.0
"""Number of polls, and seconds between polls. Over all polls, the driver samples the load of each process at least twice."""

WATCH_SECONDS = 2.0

BRIEF = Limits(dead_seconds=3.0, orphan_seconds=3.0, unaccounted_seconds=3.0)
"""Short checks use these limits. An ending process frees its memory within three seconds, except on the largest GPUs."""

_UNIX_SECONDS_MIN = 1e9  # smaller values are seconds since the recording's start


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdicts on all processes at one time."""

    t: float
    gpus: tuple[GpuHolders, ...]
    note: str = ""
    no_driver: bool = False

    @property
    def stale(self) -> bool:
        return any(each.has_stale for each in self.gpus)


def show(
    *, as_json: bool, watch: bool, trace: Path | None, at: float | None, procfs: Path
) -> Judgement:
    """Judge and print. Raises WatchError."""
    if at is not None and trace is None:
        raise WatchError("--at without --trace", "add --trace FILE")
    if trace is not None:
        if watch:
            raise WatchError("--watch with --trace", "a recording does not change: leave one out")
        judgement = of_recording(trace, at)
        _print(judgement, as_json=as_json, local=False)
        return judgement
    if not procfs.is_dir():
        raise WatchError(
            f"--procfs {procfs}: no such folder", "give the path where the host's /proc is mounted"
        )
    printed = lambda now: _print(now, as_json=as_json, local=True, clear=watch)  # noqa: E731
    judgement = asyncio.run(_of_host(procfs, printed if watch else None))
    if not watch:
        _print(judgement, as_json=as_json, local=True)
    return judgement


def of_recording(trace: Path, at: float | None) -> Judgement:
    """Judge the recording's last reading, or the last reading up to `at`."""
    judge, timeline = HolderJudge(), Timeline()
    judgement, until, seen = None, at, False
    for raw in recording.read(trace):
        if not seen and at is not None and at < _UNIX_SECONDS_MIN:
            until = raw.t + at
        seen = True
        if until is not None and raw.t > until:
            break
        if timeline.is_late(raw.t, raw.monotonic_s):
            continue
        at_s, _ = timeline.advance(raw.t, raw.monotonic_s)
        if raw.gpus is not None:
            answering = [frozenset[int]()] if raw.scrape.outcome == "ok" else []
            judgement = Judgement(
                t=raw.t, gpus=judge.look(at_s, raw.t, raw.gpus, answering=answering)
            )
    if judgement is None:
        moment = "" if at is None else f" up to {at:g}"
        raise WatchError(
            f"{trace} holds no GPUs{moment}", "record on the GPUs' host, or name a later moment"
        )
    if not judgement.gpus:
        return Judgement(t=judgement.t, gpus=(), note="the recording lists no GPU at that moment")
    return judgement


async def _of_host(procfs: Path, each: Callable[[Judgement], None] | None) -> Judgement:
    logs.configure(LogSettings(level="error"))  # the table shows poll errors
    source = NvmlSource(GpuSettings(), ProcReader(procfs))
    judge, number = HolderJudge(BRIEF), 0
    try:
        while True:
            reading = await source.read()
            number += 1
            found = judge.look(time.monotonic(), reading.t, _gpus(reading))
            judgement = Judgement(t=reading.t, gpus=found, note=_note(reading), no_driver=reading.status == "no_driver")  # fmt: skip
            if each is not None:
                each(judgement)
            elif number >= LOOKS or not found:
                return judgement
            await asyncio.sleep(LOOK_SECONDS if each is None else WATCH_SECONDS)
    finally:
        await source.close()


def _gpus(reading: GpuReading) -> tuple[GpuSample, ...]:
    gpus = reading.known_gpus
    if gpus is None:
        raise WatchError(
            f"the GPUs cannot be read: {reading.text}",
            "see docs/gpu.md for the meaning of each state",
        )
    return gpus


def _note(reading: GpuReading) -> str:
    if reading.status == "no_driver":
        return reading.text
    return "" if reading.gpus else "the driver lists no GPU: none was given to this container"


def _print(judgement: Judgement, *, as_json: bool, local: bool, clear: bool = False) -> None:
    if as_json:
        print(json.dumps(report(judgement.gpus, judgement.note, local=local)), flush=True)
        return
    colours = gpus_table.COLOURS if terminal.takes_colours(sys.stdout) else gpus_table.PLAIN
    columns = terminal.columns(gpus_table.COLUMNS_MIN, gpus_table.COLUMNS_MAX)
    text = gpus_table.table(
        judgement.gpus, judgement.note, columns=columns, colours=colours, local=local
    )
    if clear and sys.stdout.isatty():
        print("\033[H\033[2J", end="")
    print(text, flush=True)
