"""Run `gpus --reclaim`: judge, show the plan, ask, act, report."""

import asyncio
import contextlib
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import state_folder, terminal
from vllm_watch.cli.helpers.gpu_holders import BRIEF, command_of, user_of
from vllm_watch.errors import JournalError, WatchError
from vllm_watch.reclaim.plan import Plan, Refusal, Victim
from vllm_watch.reclaim.reclaim import Looks, Outcome, Patience, Reclaim, held, user_name
from vllm_watch.settings.stages import GpuSettings, LogSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.state.journal import Journal
from vllm_watch.support import logs
from vllm_watch.support.quantities import seconds, size
from vllm_watch.support.visible import visible_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The command line's arguments."""

    pid: int
    yes: bool
    as_json: bool
    procfs: Path
    state_dir: Path | None
    no_journal: bool
    look_seconds: float
    patience: Patience


def reclaim(order: Order) -> bool:
    """Return True if memory was freed. Raises WatchError."""
    if order.as_json and not order.yes:
        raise WatchError("--json without --yes", "a program cannot be asked: add --yes")
    if not order.procfs.is_dir():
        raise WatchError(
            f"--procfs {order.procfs}: no such folder", "give the host's /proc as mounted"
        )
    logs.configure(LogSettings(level="error"))  # the output shows poll errors
    folder = None if order.no_journal else state_folder.find(order.state_dir, os.environ)
    return asyncio.run(_reclaim(order, folder))


async def _reclaim(order: Order, folder: Path | None) -> bool:
    source = NvmlSource(GpuSettings(), ProcReader(order.procfs))
    looks = Looks(order.pid, source.read, BRIEF)
    try:
        _say(order, f"looking at process {order.pid} …", passing=True)
        found = await looks.until_certain(order.look_seconds)
        if isinstance(found, Refusal):
            return _refused(order, found)
        async with _journal(folder) as journal:
            _say(order, _block(found, order.patience, folder))
            if not order.yes:
                refusal = await _asked(looks, found)
                if refusal is not None:
                    return _refused(order, refusal)
            return await _act(order, looks, found, source, journal, folder)
    except JournalError as error:
        return _refused(
            order,
            Refusal(
                cause=f"nothing was done, since the journal cannot be written: {error.cause}",
                remedy=f"{error.remedy.rstrip('.')}; or name another folder (--state-dir); or go without (--no-journal)",
            ),
        )
    finally:
        looks.close()
        await source.close()


@contextlib.asynccontextmanager
async def _journal(folder: Path | None) -> AsyncIterator[Journal | None]:
    if folder is None:
        yield None
        return
    state_folder.make(folder)
    journal = Journal(folder)
    try:
        await journal.entries(limit=1)  # raises if unwritable
        yield journal
    finally:
        await journal.close()


async def _asked(looks: Looks, plan: Plan) -> Refusal | None:
    """Ask, then poll again, because the answer may take a while."""
    if not sys.stdin.isatty():
        return Refusal(
            cause="nothing was done: there is no terminal to ask on",
            remedy="add --yes, if you mean it",
        )
    answer = await asyncio.to_thread(input, "End it and free that memory? [yes/no] ")
    if answer.strip().lower() not in ("y", "yes"):
        return Refusal(
            cause="nothing was done: you did not confirm", remedy="run it again to be asked"
        )
    again = await looks.once_more(plan)
    return again if isinstance(again, Refusal) else None


async def _act(
    order: Order,
    looks: Looks,
    plan: Plan,
    source: NvmlSource,
    journal: Journal | None,
    folder: Path | None,
) -> bool:
    work = Reclaim(
        plan=plan, pins={each.pid: looks.pinned(each) for each in plan.victims}, gpus=looks.gpus,
        read=source.read, journal=journal, actor=_actor(), patience=order.patience,
        tell=lambda text: _say(order, f"  {text}"),
    )  # fmt: skip
    outcome = await work.run()
    if order.as_json:
        print(json.dumps(_as_json(plan, outcome, folder)))
    else:
        print(visible_lines(_result(plan, outcome)))
    return outcome.freed


def _refused(order: Order, refusal: Refusal) -> bool:
    if order.as_json:
        said = {"freed": False, "refused": {"cause": refusal.cause, "remedy": refusal.remedy}}
        print(json.dumps(said))
    else:
        print(visible_lines(_refusal(refusal)), file=sys.stderr)
    return False


def _say(order: Order, text: str, *, passing: bool = False) -> None:
    if order.as_json or (passing and not sys.stdout.isatty()):
        return
    print(visible_lines(text) if not passing else text, flush=True)


def _actor() -> str:
    own, behind = user_name(os.geteuid()), os.environ.get("SUDO_USER")
    return f"{behind} as {own}" if behind and behind != own else own


_COLUMNS_MIN, _COLUMNS_MAX = 60, 120
_LABEL = 9

OTHERS_SHOWN = 8


def _block(plan: Plan, patience: Patience, folder: Path | None) -> str:
    first = plan.victims[0]
    judged = first.holder.judged
    lines = [
        f"process {first.pid} is stale: {judged.reason}",
        *_row("what", command_of(first.holder) or "its command line cannot be read"),
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


def _result(plan: Plan, outcome: Outcome) -> str:
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


def _refusal(refused: Refusal) -> str:
    return f"vllm-watch: {refused.cause}\n  → {refused.remedy}"


def _as_json(plan: Plan, outcome: Outcome, folder: Path | None) -> dict[str, Any]:
    ended = {each.pid: each for each in outcome.ended}
    return {
        "freed": outcome.freed,
        "refused": None,
        "processes": [
            {
                "pid": each.pid,
                "user": user_of(each.holder, local=True),
                "command": command_of(each.holder),
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
    parts = [f"user {user_of(holder, local=True) or 'unknown'}"]
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
