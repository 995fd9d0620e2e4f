"""List the journal: actions, actors, reasons and results."""

import argparse
import asyncio
import getpass
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path

from vllm_watch.cli.helpers import connection, exit_status, options, state_folder, terminal
from vllm_watch.cli.helpers.top.status import asked
from vllm_watch.errors import WatchError
from vllm_watch.state import file, seal
from vllm_watch.state.journal import Entry, Told
from vllm_watch.support.visible import visible

HELP = """\
Shows the journal: every attempt to restart a server and how it ended; every request and the decision;
every reload; every step to end a process (gpus --reclaim). Each entry shows who requested it, from where,
why, and the result. The oldest comes first.

If entries are lost (files cut, removed or damaged), it reports that, and nothing is restarted until someone has
checked and run accept-loss. With --url it asks a running daemon, on any host, which returns its last 2,000 entries.

examples:
  vllm-watch journal --since 2h
  vllm-watch journal --since 2026-03-01 --json
  vllm-watch journal accept-loss --reason "the disk was replaced"
  vllm-watch journal --state-dir /var/lib/vllm-watch
  vllm-watch journal --url http://gpu-7:9470 --since 12h"""

ENTRIES_MAX = 20_000  # the journal's limit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", nargs="?", choices=("accept-loss",),
        help="continue without the lost entries: restarts are possible again")  # fmt: skip
    add("--reason", metavar="TEXT", default="", help="the reason, for the journal")
    add("--json", action="store_true", help="one JSON object per entry")
    add("--since", metavar="T", type=partial(options.moment, now_t=time.time()), default=0.0,
        help="show entries since then: 90s, 30m, 2h or 7d ago, a date (2026-03-01T12:00, local time), or Unix seconds")  # fmt: skip
    add("--state-dir", metavar="DIR", type=Path,
        help="the journal's folder (default: state_dir in $VLLM_WATCH_CONFIG, else ~/.local/state/vllm-watch)")  # fmt: skip
    connection.add_daemon(parser, url_help="ask the daemon there instead of reading a folder")


def run(arguments: argparse.Namespace) -> int:
    if arguments.url is not None:
        _show_remote(arguments)
        return exit_status.FINE
    folder = state_folder.find(arguments.state_dir)
    if not (folder / file.NAME).exists() and not (folder / seal.NAME).exists():
        raise WatchError(
            f"there is no journal in {folder}",
            "name the state folder with --state-dir; a watcher that has done nothing yet has no journal",
        )
    if arguments.action is not None:
        lost = asyncio.run(_accept_loss(folder, arguments.reason))
        print(f"accepted: {lost}" if lost else "nothing was lost")
    else:
        _show(asyncio.run(_read(folder, arguments.since)), str(folder), as_json=arguments.json)
    return exit_status.FINE


def _show_remote(arguments: argparse.Namespace) -> None:
    for given, name in ((arguments.action, "accept-loss"), (arguments.state_dir, "--state-dir")):
        if given:
            remedy = "a folder is named on its own host: leave one out"
            raise WatchError(f"{name} with --url", remedy)
    there = connection.of(arguments)
    told = asked(there, lambda daemon: daemon.journal(arguments.since))
    _show(told, there.url, as_json=arguments.json)


def _show(told: Told, where: str, *, as_json: bool) -> None:
    if told.lost is not None:
        lost = f"a part of the history is lost: {visible(told.lost)}"
        print(f"{lost}; to continue: vllm-watch journal accept-loss", file=sys.stderr)
    if told.older:
        shown = f"only the last {len(told.entries)} entries of that time are shown here"
        print(shown, file=sys.stderr)
    if as_json:
        for entry in told.entries:
            print(json.dumps(asdict(entry)))
    else:
        print(_text(told.entries, where))


async def _accept_loss(folder: Path, reason: str) -> str | None:
    async with state_folder.journal(folder) as journal:
        return await journal.accept_loss(getpass.getuser(), reason)


async def _read(folder: Path, since_t: float) -> Told:
    async with state_folder.journal(folder) as journal:
        return await journal.told(since_t, ENTRIES_MAX)


def _text(entries: Sequence[Entry], where: str) -> str:
    if not entries:
        return f"no entries of that time in {where}"
    columns = terminal.columns(160) - 1
    paint = terminal.painter(sys.stdout)
    lines: list[str] = []
    for entry in entries:
        when = datetime.fromtimestamp(entry.t).astimezone().isoformat(" ", "seconds")
        head = f"{entry.action.replace('_', ' ')}: {entry.target}" if entry.target else entry.action
        lines.append(f"{when}  {paint(terminal.BOLD, visible(head))}")
        told = (
            f"by {entry.actor} ({entry.source})",
            entry.reason,
            entry.before and f"before: {entry.before}",
            entry.after,
        )
        for text in filter(None, told):
            lines += terminal.wrapped(visible(text), columns, " " * 4, " " * 6)
    return "\n".join(lines)
