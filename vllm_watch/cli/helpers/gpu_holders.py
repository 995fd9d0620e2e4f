"""Judge the processes that hold GPU memory, on this host or in a recording, and format them as JSON or a table."""

import argparse
import asyncio
import json
import pwd
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import exit_status, terminal
from vllm_watch.errors import WatchError
from vllm_watch.export.status import public_arguments
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.signals.holders.judge import HolderJudge, remarks
from vllm_watch.signals.holders.records import (
    ACTIVE,
    STALE,
    UNKNOWN,
    VLLM,
    GpuHolders,
    Holder,
    Judged,
    Limits,
)
from vllm_watch.signals.timeline import Timeline
from vllm_watch.sources import recording
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import logs
from vllm_watch.support.quantities import seconds, size
from vllm_watch.support.visible import visible

LOOKS, LOOK_SECONDS = 5, 1.0
"""Number of polls, and seconds between polls. Over all polls, the driver samples the load of each process at least twice."""

WATCH_SECONDS = 2.0

BRIEF = Limits(dead_seconds=3.0, orphan_seconds=3.0, unaccounted_seconds=3.0)
"""Short checks use these limits. An ending process frees its memory within three seconds, except on the largest GPUs."""

_UNIX_SECONDS_MIN = 1e9  # smaller values are seconds since the recording's start


@asynccontextmanager
async def gpu_source(procfs: Path = Path("/proc")) -> AsyncIterator[NvmlSource]:
    """Open this host's GPUs for a command, which shows poll errors itself."""
    logs.configure("error")
    source = NvmlSource(GpuSettings(), ProcReader(procfs))
    try:
        yield source
    finally:
        await source.close()


def show(arguments: argparse.Namespace) -> int:
    """Judge, print and return the exit status: 1 if memory is stale, or 3 without a driver. Raises WatchError."""
    if arguments.trace is None:
        if arguments.at is not None:
            raise WatchError("--at without --trace", "add --trace FILE")
        if not arguments.procfs.is_dir():
            remedy = "give the path where the host's /proc is mounted"
            raise WatchError(f"--procfs {arguments.procfs}: no such folder", remedy)
        return asyncio.run(_show_host(arguments))
    if arguments.watch:
        raise WatchError("--watch with --trace", "a recording does not change: leave one out")
    gpus = _of_recording(arguments.trace, arguments.at)
    _print(gpus, "" if gpus else "the recording lists no GPU at that moment", arguments)
    return _status(gpus)


def _status(gpus: Sequence[GpuHolders]) -> int:
    return exit_status.FOUND if any(each.has_stale for each in gpus) else exit_status.FINE


def _of_recording(trace: Path, at: float | None) -> tuple[GpuHolders, ...]:
    """Judge the recording's last reading, or the last reading up to `at`."""
    judge, timeline = HolderJudge(), Timeline()
    judged, until, seen = None, at, False
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
            judged = judge.look(at_s, raw.t, raw.gpus, answering=answering)
    if judged is None:
        cause = f"{trace} holds no GPUs{'' if at is None else f' up to {at:g}'}"
        raise WatchError(cause, "record on the GPUs' host, or name a later moment")
    return judged


async def _show_host(arguments: argparse.Namespace) -> int:
    judge, number = HolderJudge(BRIEF), 0
    async with gpu_source(arguments.procfs) as source:
        while True:
            reading = await source.read()
            number += 1
            if reading.known_gpus is None:
                remedy = "see docs/gpu.md for the meaning of each state"
                raise WatchError(f"the GPUs cannot be read: {reading.text}", remedy)
            found = judge.look(time.monotonic(), reading.t, reading.known_gpus)
            ends = not arguments.watch and (number >= LOOKS or not found)
            if ends or arguments.watch:
                none = "the driver lists no GPU: none was given to this container"
                no_driver = reading.status == "no_driver"
                _print(
                    found, reading.text if no_driver else "" if reading.gpus else none, arguments
                )
                if ends:
                    return exit_status.NO_GO if no_driver else _status(found)
            await asyncio.sleep(WATCH_SECONDS if arguments.watch else LOOK_SECONDS)


def _print(gpus: Sequence[GpuHolders], note: str, arguments: argparse.Namespace) -> None:
    local = arguments.trace is None
    if arguments.json:
        told = {
            "gpus": [_gpu(each, local=local) for each in gpus],
            "remarks": list(remarks(gpus)),
            "note": note or None,
        }
        print(json.dumps(told), flush=True)
        return
    columns = terminal.columns(220) - 1
    text = _Table(columns, terminal.painter(sys.stdout), local).of(gpus, note)
    if arguments.watch and sys.stdout.isatty():
        print("\033[H\033[2J", end="")
    print(text, flush=True)


_OF_GPU = ("index", "uuid", "name", "mig_parent_uuid", "lost", "memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes")  # fmt: skip
_OF_REST = ("verdict", "reason", "evidence", "remedy")


def _gpu(judged: GpuHolders, *, local: bool) -> dict[str, Any]:
    return {
        **{name: getattr(judged.gpu, name) for name in _OF_GPU},
        "stale_bytes": judged.stale_bytes,
        "unaccounted_bytes": judged.unaccounted_bytes,
        "unaccounted": {name: getattr(judged.unaccounted, name) for name in _OF_REST},
        "holders": [_holder(each, local=local) for each in judged.holders or ()],
    }


def _holder(holder: Holder, *, local: bool) -> dict[str, Any]:
    process, judged = holder.process, holder.judged
    return {
        "pid": process.pid,
        "used_bytes": process.used_bytes,
        "user": user_of(holder, local=local),
        "command": command_of(holder),
        "age_seconds": holder.age_seconds,
        "place": holder.place,
        "verdict": judged.verdict,
        "reason": judged.reason if judged.verdict == STALE else None,
        "evidence": judged.evidence,
        "remedy": judged.remedy,
    }


def user_of(holder: Holder, *, local: bool) -> str | None:
    """Return the user's number, or if `local`, the name."""
    uid = holder.process.uid
    if uid is None:
        return None
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name if local else str(uid)
    return str(uid)


def command_of(holder: Holder) -> str | None:
    """Return the command without secrets, or the process's name."""
    shown = " ".join(public_arguments(holder.process.cmdline) or ()) or holder.process.name
    return shown and visible(shown)


_STYLES = {VLLM: "32", ACTIVE: "36", STALE: terminal.RED, UNKNOWN: terminal.YELLOW}
_BAR_CELLS = 20
_INDENT = "           "


@dataclass(frozen=True, slots=True)
class _Table:
    columns: int
    paint: terminal.Paint
    local: bool

    def of(self, gpus: Sequence[GpuHolders], note: str) -> str:
        if not gpus:
            return f"no GPUs: {note}"
        lines = [line for each in gpus for line in [*self._gpu(each), ""]]
        for text in remarks(gpus):
            lines += textwrap.wrap(text, self.columns, initial_indent="! ", subsequent_indent="  ")
        return "\n".join([*lines, self._end(gpus)])

    def _gpu(self, judged: GpuHolders) -> list[str]:
        lines, rest = self._head(judged), judged.unaccounted
        if judged.gpu.lost:
            return lines
        if judged.holders is None:
            lines.append(f"  {self._dim('who holds its memory cannot be read')}")
        elif judged.holders:
            head = f"  {'VERDICT':8} {'PID':>8} {'HOLDS':>9} {'AGE':>11} {'USER':8} PROCESS"
            lines.append(self._dim(head))
            for holder in judged.holders:
                lines += self._holder(holder)
        elif not judged.unaccounted_bytes:
            lines.append(f"  {self._dim('no process holds its memory')}")
        if (
            judged.unaccounted_bytes is not None
            and rest.verdict in (STALE, UNKNOWN)
            and rest.evidence
        ):
            told = f" {'–':>8} {size(judged.unaccounted_bytes):>9} {'':>11} {'':8} no process"
            lines += [self._verdict(rest) + told, *self._reasons(rest)]
        return lines

    def _head(self, judged: GpuHolders) -> list[str]:
        gpu = judged.gpu
        plain, name = f"{'  slice' if gpu.mig_parent_uuid else 'GPU'} {gpu.index}", gpu.name or "name unknown"  # fmt: skip
        head = f"{self.paint(terminal.BOLD, plain)}  {name}"
        if gpu.lost:
            return [f"{head}  {self.paint(terminal.RED, 'lost: it fell off the bus')}"]
        told = ["memory unknown"]
        if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
            share = min(1.0, gpu.memory_used_bytes / gpu.memory_total_bytes)
            told = [
                f"{'█' * round(share * _BAR_CELLS):░<{_BAR_CELLS}}",
                f"{size(gpu.memory_used_bytes)} of {size(gpu.memory_total_bytes)}",
            ]
        if gpu.utilization_ratio is not None:
            told.append(f"{gpu.utilization_ratio:.0%} busy")
        rest = "  ".join(told)
        fits = len(f"{plain}  {name}  {rest}") <= self.columns
        return [f"{head}  {rest}"] if fits else [head, f"  {rest}"]

    def _holder(self, holder: Holder) -> list[str]:
        process, judged = holder.process, holder.judged
        age = "–" if holder.age_seconds is None else seconds(holder.age_seconds)
        user = _cut(user_of(holder, local=self.local) or "–", 8)
        start = f" {process.pid:>8} {size(process.used_bytes):>9} {age:>11} {user:8} "
        command = command_of(holder) or "–"
        room = self.columns - 2 - 8 - len(start)
        place = f" · {holder.place}" if holder.place else ""
        if len(command) + len(place) > room:
            place = ""
        lines = [self._verdict(judged) + start + _cut(command + place, room)]
        if judged.verdict in (STALE, UNKNOWN):
            lines += self._reasons(judged)
        elif judged.verdict == VLLM and "more than" in judged.evidence[-1]:
            lines += self._wrapped(judged.evidence[-1], terminal.DIM)
        elif judged.verdict == ACTIVE and judged.evidence and "ago" in judged.evidence[0]:
            lines += self._wrapped(judged.evidence[0], terminal.DIM)
        return lines

    def _verdict(self, judged: Judged) -> str:
        return f"  {self.paint(_STYLES[judged.verdict], f'{judged.verdict:8}')}"

    def _reasons(self, judged: Judged) -> list[str]:
        reason = f"{judged.reason}: " if judged.reason else ""
        lines = self._wrapped(reason + "; ".join(judged.evidence), terminal.DIM)
        if judged.remedy and judged.verdict == STALE:
            lines += self._wrapped(f"→ {judged.remedy}")
        return lines

    def _wrapped(self, text: str, style: str = "") -> list[str]:
        found = terminal.wrapped(text, self.columns - len(_INDENT))
        return [_INDENT + self.paint(style, line) for line in found]

    def _dim(self, text: str) -> str:
        return self.paint(terminal.DIM, text)

    def _end(self, gpus: Sequence[GpuHolders]) -> str:
        stale = sum(each.stale_bytes or 0 for each in gpus)
        rests = (each.unaccounted_bytes for each in gpus if each.unaccounted.verdict == STALE)
        stale += sum(each or 0 for each in rests)
        if not any(each.has_stale for each in gpus):
            return "nothing is stale"
        return self.paint(terminal.RED, f"{size(stale)} are stale")


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(1, characters - 1)] + "…"
