"""Run `gpus --reclaim`: judge, show the plan, ask, act, report."""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from vllm_watch.cli.helpers import state_folder, terminal
from vllm_watch.cli.helpers.gpu_holders import BRIEF, command_of, gpu_source, user_of
from vllm_watch.errors import JournalError, WatchError
from vllm_watch.reclaim.plan import Plan, RefusalError, Victim
from vllm_watch.reclaim.reclaim import Looks, Outcome, Patience, Reclaim, held, user_name
from vllm_watch.state.journal import Journal
from vllm_watch.support.quantities import seconds, size
from vllm_watch.support.visible import visible_lines


def reclaim(arguments: argparse.Namespace, patience: Patience) -> bool:
    """Return True if memory was freed. Raises WatchError."""
    if arguments.json and not arguments.yes:
        raise WatchError("--json without --yes", "a program cannot be asked: add --yes")
    if not arguments.procfs.is_dir():
        cause = f"--procfs {arguments.procfs}: no such folder"
        raise WatchError(cause, "give the host's /proc as mounted")
    try:
        return asyncio.run(_reclaim(arguments, patience))
    except RefusalError as refusal:
        cause, remedy = refusal.cause, refusal.remedy
    except JournalError as error:
        cause = f"nothing was done, since the journal cannot be written: {error.cause}"
        remedy = f"{error.remedy.rstrip('.')}; or name another folder (--state-dir); or go without (--no-journal)"
    if arguments.json:
        print(json.dumps({"freed": False, "refused": {"cause": cause, "remedy": remedy}}))
    else:
        print(visible_lines(f"vllm-watch: {cause}\n  → {remedy}"), file=sys.stderr)
    return False


async def _reclaim(arguments: argparse.Namespace, patience: Patience) -> bool:
    async with gpu_source(arguments.procfs) as source:
        folder = None if arguments.no_journal else state_folder.find(arguments.state_dir)
        with contextlib.closing(Looks(arguments.reclaim, source.read, BRIEF)) as looks:
            if sys.stdout.isatty():
                _say(arguments, f"looking at process {looks.pid} …")
            found = await looks.until_certain(arguments.look)
            async with _journal(folder) as journal:
                _say(arguments, _block(found, patience, folder))
                if not arguments.yes:
                    await _ask(looks, found)
                work = Reclaim(
                    plan=found, pins={each.pid: looks.pinned(each) for each in found.victims}, gpus=looks.gpus,
                    read=source.read, journal=journal, actor=_actor(), patience=patience,
                    tell=lambda text: _say(arguments, f"  {text}"),
                )  # fmt: skip
                outcome = await work.run()
    if arguments.json:
        print(json.dumps(_as_json(found, outcome, folder)))
    else:
        print(visible_lines(_result(found, outcome)))
    return outcome.freed


@contextlib.asynccontextmanager
async def _journal(folder: Path | None) -> AsyncIterator[Journal | None]:
    if folder is None:
        yield None
        return
    state_folder.make(folder)
    async with state_folder.journal(folder) as journal:
        await journal.entries(limit=1)  # raises if unwritable
        yield journal


async def _ask(looks: Looks, plan: Plan) -> None:
    """Ask, then poll again, because the answer may take a while. Raises RefusalError."""
    if not sys.stdin.isatty():
        cause = "nothing was done: there is no terminal to ask on"
        raise RefusalError(cause, "add --yes, if you mean it")
    answer = await asyncio.to_thread(input, "End it and free that memory? [yes/no] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise RefusalError("nothing was done: you did not confirm", "run it again to be asked")
    await looks.once_more(plan)


def _say(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json:
        print(visible_lines(text), flush=True)


def _actor() -> str:
    own, behind = user_name(os.geteuid()), os.environ.get("SUDO_USER")
    return f"{behind} as {own}" if behind and behind != own else own


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
        text = f"process {child.pid}, which it started and is stale too: {held(child)}"
        lines += _row("with it", text)
    for child in plan.left:
        verdict = child.holder.judged.verdict
        text = f"process {child.pid}, which it started, is left alone ({verdict}): {held(child)}"
        lines += _row("not", text)
    for other in plan.others[:OTHERS_SHOWN]:
        text = f"process {other.pid} is stale too, and stays until it is reclaimed itself: {held(other)}"
        lines += _row("also", text)
    how = f"SIGTERM, and SIGKILL if it stays for {patience.term_seconds:g} s"
    where = "not written down" if folder is None else f"written down in {folder}"
    return "\n".join([*lines, *_row("how", f"{how}; {where}")])


def _result(plan: Plan, outcome: Outcome) -> str:
    lines = [
        f"  GPU {each.gpu.index}: {size(each.gpu.memory_used_bytes)} used before, {size(each.after_bytes)} now"
        for each in outcome.release.gpus
    ]
    if outcome.freed:
        total = _sum([victim.bytes for victim in plan.victims])
        return "\n".join([*lines, f"freed {total}, as the driver confirms"])
    if outcome.trouble:
        lines.append(f"  {outcome.trouble}")
    for each in outcome.ended:
        if each.by is None and not outcome.trouble:
            stays = f"did not end (state {each.state or 'unknown'})"
            if each.state == "D":
                stays = "is stuck in the kernel (state D): no signal reaches it"
            lines += _row("", f"process {each.pid} {stays}", 0)
    lines += [line for text in outcome.release.still for line in _row("", text, 0)]
    unsure = outcome.release.released is None and outcome.release.gpus
    word = "whether it was freed is unknown" if unsure else "not freed"
    waited = seconds(outcome.release.waited_seconds)
    lines.append(f"{word} (the driver was asked for {waited})")
    return "\n".join([*lines, *_remedies(outcome)])


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
                "index": each.gpu.index,
                "uuid": each.gpu.uuid,
                "held_bytes": each.held_bytes,
                "memory_used_bytes_before": each.gpu.memory_used_bytes,
                "memory_used_bytes_after": each.after_bytes,
                "released": each.released,
            }
            for each in outcome.release.gpus
        ],
        "still": list(outcome.release.still),
        "trouble": outcome.trouble,
        "journal": str(folder) if folder is not None and outcome.journaled else None,
    }


def _whose(victim: Victim) -> str:
    holder = victim.holder
    parts = [f"user {user_of(holder, local=True) or 'unknown'}", holder.place]
    if holder.age_seconds is not None:
        parts.append(f"started {seconds(holder.age_seconds)} ago")
    return ", ".join(filter(None, parts))


def _frees(plan: Plan) -> str:
    on: dict[int, list[int | None]] = {}
    names: dict[int, str] = {}
    for victim in plan.victims:
        for part in victim.parts:
            on.setdefault(part.gpu.index, []).append(part.holder.process.used_bytes)
            names[part.gpu.index] = f" ({part.gpu.name})" if part.gpu.name else ""
    return ", ".join(
        f"{_sum(found)} on GPU {index}{names[index]}" for index, found in sorted(on.items())
    )


def _sum(held_bytes: Sequence[int | None]) -> str:
    return size(None if None in held_bytes else sum(each or 0 for each in held_bytes))


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
    columns = terminal.columns() - 1
    first = f"  {label}".ljust(width + 2)
    return terminal.wrapped(text, columns, first, " " * len(first))
