"""Judge the processes that hold GPU memory, on this host or in a recording, and format them as JSON or a table."""

import asyncio
import json
import pwd
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import terminal
from vllm_watch.errors import WatchError
from vllm_watch.export.status import public_arguments
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.settings.stages import GpuSettings, LogSettings
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
    colours = COLOURS if terminal.takes_colours(sys.stdout) else PLAIN
    columns = terminal.columns(COLUMNS_MIN, COLUMNS_MAX)
    text = table(judgement.gpus, judgement.note, columns=columns, colours=colours, local=local)
    if clear and sys.stdout.isatty():
        print("\033[H\033[2J", end="")
    print(text, flush=True)


def report(gpus: Sequence[GpuHolders], note: str, *, local: bool) -> dict[str, Any]:
    """Return the JSON. If `local`, user names are resolved."""
    return {
        "gpus": [_gpu(each, local=local) for each in gpus],
        "remarks": list(remarks(gpus)),
        "note": note or None,
    }


def _gpu(judged: GpuHolders, *, local: bool) -> dict[str, Any]:
    gpu, rest = judged.gpu, judged.unaccounted
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "mig_parent_uuid": gpu.mig_parent_uuid,
        "lost": gpu.lost,
        "memory_total_bytes": gpu.memory_total_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
        "memory_reserved_bytes": gpu.memory_reserved_bytes,
        "stale_bytes": judged.stale_bytes,
        "unaccounted_bytes": judged.unaccounted_bytes,
        "unaccounted": {
            "verdict": rest.verdict,
            "reason": rest.reason,
            "evidence": list(rest.evidence),
            "remedy": rest.remedy,
        },
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
        "evidence": list(judged.evidence),
        "remedy": judged.remedy,
    }


def user_of(holder: Holder, *, local: bool) -> str | None:
    """Return the user's name or number."""
    uid = holder.process.uid
    if uid is None:
        return None
    if local:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            pass
    return str(uid)


def command_of(holder: Holder) -> str | None:
    """Return the command without secrets, or the process's name."""
    shown = " ".join(public_arguments(holder.process.cmdline) or ()) or holder.process.name
    return shown and visible(shown)


COLUMNS_MIN, COLUMNS_MAX = 60, 220
COLOURS = {VLLM: "\033[32m", ACTIVE: "\033[36m", STALE: "\033[1;31m", UNKNOWN: "\033[33m",
           "bold": "\033[1m", "dim": "\033[2m", "end": "\033[0m"}  # fmt: skip
PLAIN: Mapping[str, str] = dict.fromkeys(COLOURS, "")

_BAR_CELLS = 20
_INDENT = "           "


def table(
    gpus: Sequence[GpuHolders], note: str, *, columns: int, colours: Mapping[str, str], local: bool
) -> str:
    """Return the table."""
    if not gpus:
        return f"no GPUs: {note}"
    columns -= 1
    lines: list[str] = []
    for each in gpus:
        lines += [*_gpu_lines(each, columns, colours, local=local), ""]
    told = [line for text in remarks(gpus) for line in _remark(text, columns)]
    return "\n".join([*lines, *told, _end(gpus, colours)])


def _gpu_lines(
    judged: GpuHolders, columns: int, colours: Mapping[str, str], *, local: bool
) -> list[str]:
    lines = _head(judged, columns, colours)
    if judged.gpu.lost:
        return lines
    if judged.holders is None:
        lines.append(f"  {colours['dim']}who holds its memory cannot be read{colours['end']}")
    elif judged.holders:
        user_width = 8
        head = f"  {'VERDICT':8} {'PID':>8} {'HOLDS':>9} {'AGE':>11} {'USER':{user_width}} PROCESS"
        lines.append(f"{colours['dim']}{head}{colours['end']}")
        for holder in judged.holders:
            lines += _holder_lines(holder, columns, colours, local=local)
    elif not judged.unaccounted_bytes:
        lines.append(f"  {colours['dim']}no process holds its memory{colours['end']}")
    if judged.unaccounted.verdict in (STALE, UNKNOWN) and judged.unaccounted.evidence:
        held = size(judged.unaccounted_bytes)
        told = (
            ""
            if judged.unaccounted_bytes is None
            else f" {'–':>8} {held:>9} {'':>11} {'':8} no process"
        )
        word = judged.unaccounted.verdict
        if judged.unaccounted_bytes is not None:
            lines.append(f"  {colours[word]}{word:8}{colours['end']}{told}")
            lines += _reasons(judged.unaccounted, columns, colours)
    return lines


def _head(judged: GpuHolders, columns: int, colours: Mapping[str, str]) -> list[str]:
    gpu = judged.gpu
    kind = "  slice" if gpu.mig_parent_uuid else "GPU"
    name = f"{colours['bold']}{kind} {gpu.index}{colours['end']}  {gpu.name or 'name unknown'}"
    if gpu.lost:
        return [f"{name}  {colours[STALE]}lost: it fell off the bus{colours['end']}"]
    told = []
    if gpu.memory_used_bytes is not None and gpu.memory_total_bytes:
        share = min(1.0, gpu.memory_used_bytes / gpu.memory_total_bytes)
        cells = round(share * _BAR_CELLS)
        told.append(f"{'█' * cells}{'░' * (_BAR_CELLS - cells)}")
        told.append(f"{size(gpu.memory_used_bytes)} of {size(gpu.memory_total_bytes)}")
    else:
        told.append("memory unknown")
    if gpu.utilization_ratio is not None:
        told.append(f"{gpu.utilization_ratio:.0%} busy")
    rest = "  ".join(told)
    plain = len(kind) + len(str(gpu.index)) + len(gpu.name or "name unknown") + 3
    if plain + 2 + len(rest) <= columns:
        return [f"{name}  {rest}"]
    return [name, f"  {rest}"]


def _holder_lines(
    holder: Holder, columns: int, colours: Mapping[str, str], *, local: bool
) -> list[str]:
    process, judged = holder.process, holder.judged
    age = "–" if holder.age_seconds is None else seconds(holder.age_seconds)
    user = _cut(user_of(holder, local=local) or "–", 8)
    start = f" {process.pid:>8} {size(process.used_bytes):>9} {age:>11} {user:8} "
    command = command_of(holder) or "–"
    room = columns - 2 - 8 - len(start)
    place = f" · {holder.place}" if holder.place else ""
    if len(command) + len(place) > room:
        place = ""
    line = f"  {colours[judged.verdict]}{judged.verdict:8}{colours['end']}{start}"
    lines = [line + _cut(command + place, room)]
    if judged.verdict in (STALE, UNKNOWN):
        lines += _reasons(judged, columns, colours)
    elif judged.verdict == VLLM and "more than" in judged.evidence[-1]:
        lines += _wrapped(judged.evidence[-1], columns, colours["dim"], colours["end"])
    elif judged.verdict == ACTIVE and judged.evidence and "ago" in judged.evidence[0]:
        lines += _wrapped(judged.evidence[0], columns, colours["dim"], colours["end"])
    return lines


def _reasons(judged: Judged, columns: int, colours: Mapping[str, str]) -> list[str]:
    reason = f"{judged.reason}: " if judged.reason else ""
    lines = _wrapped(reason + "; ".join(judged.evidence), columns, colours["dim"], colours["end"])
    if judged.remedy and judged.verdict == STALE:
        lines += _wrapped(f"→ {judged.remedy}", columns, "", "")
    return lines


def _wrapped(text: str, columns: int, before: str, after: str) -> list[str]:
    width = columns - len(_INDENT)
    found = textwrap.wrap(text, width, break_long_words=True, break_on_hyphens=False)
    return [f"{_INDENT}{before}{line}{after}" for line in found]


def _end(gpus: Sequence[GpuHolders], colours: Mapping[str, str]) -> str:
    stale = sum(each.stale_bytes or 0 for each in gpus)
    stale += sum(each.unaccounted_bytes or 0 for each in gpus if each.unaccounted.verdict == STALE)
    if not any(each.has_stale for each in gpus):
        return "nothing is stale"
    return f"{colours[STALE]}{size(stale)} are stale{colours['end']}"


def _remark(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, initial_indent="! ", subsequent_indent="  ")


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(1, characters - 1)] + "…"
