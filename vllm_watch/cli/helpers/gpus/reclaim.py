"""Run `gpus --reclaim`: judge, show the plan, ask, act, report."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from vllm_watch.cli.helpers import state_folder
from vllm_watch.cli.helpers.gpus import reclaim_text as words
from vllm_watch.cli.helpers.gpus.judging import BRIEF
from vllm_watch.errors import JournalError, WatchError
from vllm_watch.reclaim.looks import Looks, user_name
from vllm_watch.reclaim.plan import Plan, Refusal
from vllm_watch.reclaim.reclaim import Patience, Reclaim
from vllm_watch.settings.stages import GpuSettings, LogSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.state.journal import Journal
from vllm_watch.support import logs
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
            _say(order, words.block(found, order.patience, folder))
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
        print(json.dumps(words.as_json(plan, outcome, folder)))
    else:
        print(visible_lines(words.result(plan, outcome)))
    return outcome.freed


def _refused(order: Order, refusal: Refusal) -> bool:
    if order.as_json:
        said = {"freed": False, "refused": {"cause": refusal.cause, "remedy": refusal.remedy}}
        print(json.dumps(said))
    else:
        print(visible_lines(words.refusal(refusal)), file=sys.stderr)
    return False


def _say(order: Order, text: str, *, passing: bool = False) -> None:
    if order.as_json or (passing and not sys.stdout.isatty()):
        return
    print(visible_lines(text) if not passing else text, flush=True)


def _actor() -> str:
    own, behind = user_name(os.geteuid()), os.environ.get("SUDO_USER")
    return f"{behind} as {own}" if behind and behind != own else own
