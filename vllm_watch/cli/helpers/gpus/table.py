"""Format the processes that hold GPU memory as a table at least 60 columns wide."""

import textwrap
from collections.abc import Mapping, Sequence

from vllm_watch.cli.helpers.gpus import report as gpus_report
from vllm_watch.signals.holders import groups
from vllm_watch.signals.holders.records import (
    ACTIVE,
    STALE,
    UNKNOWN,
    VLLM,
    GpuHolders,
    Holder,
    Judged,
)
from vllm_watch.signals.holders.words import seconds, size

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
        lines += [*_gpu(each, columns, colours, local=local), ""]
    told = [line for text in groups.remarks(gpus) for line in _note(text, columns)]
    return "\n".join([*lines, *told, _end(gpus, colours)])


def _gpu(judged: GpuHolders, columns: int, colours: Mapping[str, str], *, local: bool) -> list[str]:
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
            lines += _holder(holder, columns, colours, local=local)
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


def _holder(holder: Holder, columns: int, colours: Mapping[str, str], *, local: bool) -> list[str]:
    process, judged = holder.process, holder.judged
    age = "–" if holder.age_seconds is None else seconds(holder.age_seconds)
    user = _cut(gpus_report.user(holder, local=local) or "–", 8)
    start = f" {process.pid:>8} {size(process.used_bytes):>9} {age:>11} {user:8} "
    command = gpus_report.command(holder) or "–"
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


def _note(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, initial_indent="! ", subsequent_indent="  ")


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(1, characters - 1)] + "…"
