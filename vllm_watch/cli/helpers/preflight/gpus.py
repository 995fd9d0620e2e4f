"""Poll this host's GPUs until they are judged."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vllm_watch.cli.helpers.gpus.judging import BRIEF, LOOK_SECONDS, LOOKS
from vllm_watch.cli.helpers.gpus.report import command
from vllm_watch.preflight.check_memory import memory_missing
from vllm_watch.preflight.facts import Facts
from vllm_watch.settings.stages import GpuSettings, LogSettings
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import logs

WAIT_LOOK_SECONDS = 1.0
"""Seconds between polls. A poll takes milliseconds."""

_TELL_AGAIN_SECONDS = 15.0
_COMMAND_CHARACTERS = 60


class GpuLooks:
    """Reads and judges GPUs."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        logs.configure(LogSettings(level="error"))  # the findings show poll errors
        self._source = NvmlSource(GpuSettings(), ProcReader(procfs))
        self._judge = HolderJudge(BRIEF)

    async def look(self, facts: Facts) -> Facts:
        reading = await self._source.read()
        gpus = reading.known_gpus
        text = reading.text or ("" if gpus else "the driver lists none: none was given to this container")  # fmt: skip
        software = replace(facts.software, driver=reading.driver_version)
        if gpus is None:
            return replace(facts, gpus=None, gpus_text=text, software=software)
        judged = self._judge.look(time.monotonic(), reading.t, gpus)
        said = {
            holder.process.pid: said[:_COMMAND_CHARACTERS]
            for gpu in judged
            for holder in gpu.holders or ()
            if (said := command(holder)) is not None
        }
        return replace(facts, gpus=judged, gpus_text=text, software=software, commands=said)

    async def close(self) -> None:
        await self._source.close()


async def with_gpus(
    looks: GpuLooks, facts: Facts, wait_seconds: float, tell: Callable[[str], None]
) -> Facts:
    """Poll until the GPUs are judged. Wait up to `wait_seconds` for free memory."""
    began_s = time.monotonic()
    facts = await looks.look(facts)
    told, told_s, seen = "", began_s, 1
    while True:
        waited_s = time.monotonic() - began_s
        waits_for = memory_missing(facts)
        waits = bool(waits_for) and waited_s < wait_seconds
        # Judging processes takes several polls. Free memory is known after one.
        if not waits and (not waits_for or seen >= LOOKS):
            if told:
                tell(f"{'waited in vain' if waits_for else 'the memory is free'} after {waited_s:.0f} s")  # fmt: skip
            return facts
        again = time.monotonic() - told_s >= _TELL_AGAIN_SECONDS
        if waits and (waits_for != told or again):
            tell(f"waiting for GPU memory, {wait_seconds - waited_s:.0f} s more at most: {waits_for}")  # fmt: skip
            told, told_s = waits_for, time.monotonic()
        await asyncio.sleep(WAIT_LOOK_SECONDS if waits else LOOK_SECONDS)
        facts = await looks.look(facts)
        seen += 1
