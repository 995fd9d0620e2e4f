"""Format a reclaim's plan and result as text and JSON."""

import textwrap
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import terminal
from vllm_watch.cli.helpers.gpus import report as gpus_report
from vllm_watch.reclaim.plan import Plan, Refusal, Victim
from vllm_watch.reclaim.reclaim import Outcome, Patience, held
from vllm_watch.signals.holders.words import seconds, size

_COLUMNS_MIN, _COLUMNS_MAX = 60, 120
_LABEL = 9

OTHERS_SHOWN = 8


def block(plan: Plan, patience: Patience, folder: Path | None) -> str:
    """Return the plan's text."""
    first = plan.victims[0]
    judged = first.holder.judged
    lines = [
        f"process {first.pid} is stale: {judged.reason}",
        *_row("what", gpus_report.command(first.holder) or "its command line cannot be read"),
        *_row("whose", _whose(first)),
        *_row("why", "; ".join(judged.evidence)),
        *_row("frees", _frees(plan)),
    ]
    for child in plan.victims[1:]:
        lines += _row(
            "with it", f"process {child.pid}, which it started and is stale too: {held(child)}"
        )
    for child in plan.left:
        verdict = child.holder.judged.verdict
        text = f"process {child.pid}, which it started, is left alone ({verdict}): {held(child)}"
        lines += _row("not", text)
    for other in plan.others[:OTHERS_SHOWN]:
        lines += _row(
            "also",
            f"process {other.pid} is stale too, and stays until it is reclaimed itself: {held(other)}",
        )
    how = f"SIGTERM, and SIGKILL if it stays for {patience.term_seconds:g} s"
    where = "not written down" if folder is None else f"written down in {folder}"
    return "\n".join([*lines, *_row("how", f"{how}; {where}")])


def result(plan: Plan, outcome: Outcome) -> str:
    """Return the result."""
    lines = []
    for gpu in outcome.release.gpus:
        used = f"GPU {gpu.index}: {size(gpu.before_bytes)} used before, {size(gpu.after_bytes)} now"
        lines.append(f"  {used}")
    if outcome.freed:
        return "\n".join([*lines, f"freed {_total(plan)}, as the driver confirms"])
    if outcome.trouble:
        lines.append(f"  {outcome.trouble}")
    for each in outcome.ended:
        if each.by is None and not outcome.trouble:
            lines += _row("", _stays(each.pid, each.state), 0)
    lines += [line for text in outcome.release.still for line in _row("", text, 0)]
    unsure = outcome.release.released is None and outcome.release.gpus
    word = "whether it was freed is unknown" if unsure else "not freed"
    waited = seconds(outcome.release.waited_seconds)
    lines.append(f"{word} (the driver was asked for {waited})")
    return "\n".join([*lines, *_remedies(outcome)])


def refusal(refused: Refusal) -> str:
    """Return cause and remedy."""
    return f"vllm-watch: {refused.cause}\n  → {refused.remedy}"


def as_json(plan: Plan, outcome: Outcome, folder: Path | None) -> dict[str, Any]:
    """Return the published JSON."""
    ended = {each.pid: each for each in outcome.ended}
    return {
        "freed": outcome.freed,
        "refused": None,
        "processes": [
            {
                "pid": each.pid,
                "user": gpus_report.user(each.holder, local=True),
                "command": gpus_report.command(each.holder),
                "used_bytes": each.bytes,
                "reason": each.holder.judged.reason,
                "evidence": list(each.holder.judged.evidence),
                "ended_by": ended[each.pid].by,
                "after_seconds": ended[each.pid].after_seconds,
            }
            for each in plan.victims
        ],
        "left_alone": [each.pid for each in plan.left],
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "held_bytes": gpu.held_bytes,
                "memory_used_bytes_before": gpu.before_bytes,
                "memory_used_bytes_after": gpu.after_bytes,
                "released": gpu.released,
            }
            for gpu in outcome.release.gpus
        ],
        "still": list(outcome.release.still),
        "trouble": outcome.trouble,
        "journal": str(folder) if folder is not None and outcome.journaled else None,
    }


def _whose(victim: Victim) -> str:
    holder = victim.holder
    parts = [f"user {gpus_report.user(holder, local=True) or 'unknown'}"]
    if holder.place:
        parts.append(holder.place)
    if holder.age_seconds is not None:
        parts.append(f"started {seconds(holder.age_seconds)} ago")
    return ", ".join(parts)


def _frees(plan: Plan) -> str:
    on: dict[int, list[int | None]] = {}
    names: dict[int, str] = {}
    for victim in plan.victims:
        for part in victim.parts:
            on.setdefault(part.gpu_index, []).append(part.holder.process.used_bytes)
            names[part.gpu_index] = f" ({part.gpu_name})" if part.gpu_name else ""
    each = [
        f"{size(None if None in found else sum(one or 0 for one in found))} on GPU {index}{names[index]}"
        for index, found in sorted(on.items())
    ]
    return ", ".join(each)


def _total(plan: Plan) -> str:
    held_bytes = [victim.bytes for victim in plan.victims]
    return size(None if None in held_bytes else sum(each or 0 for each in held_bytes))


def _stays(pid: int, state: str | None) -> str:
    if state == "D":
        return f"process {pid} is stuck in the kernel (state D): no signal reaches it"
    return f"process {pid} did not end (state {state or 'unknown'})"


def _remedies(outcome: Outcome) -> list[str]:
    if outcome.trouble:
        return ["  → fix that, and run it again"]
    text = (
        "look in the kernel's log (dmesg) for NVRM and Xid; stop the other processes on that GPU, then reset it "
        "(nvidia-smi --gpu-reset) or reboot"
    )
    if outcome.release.released is None:
        text = "look again (vllm-watch gpus), and see docs/gpu.md for the driver's state"
    return _row("→", text, 2)


def _row(label: str, text: str, width: int = _LABEL) -> list[str]:
    columns = terminal.columns(_COLUMNS_MIN, _COLUMNS_MAX) - 1
    first = f"  {label}".ljust(width + 2)
    return textwrap.wrap(
        text, columns, initial_indent=first, subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )  # fmt: skip
