"""`vllm-watch gpus`: who holds the memory of each GPU, and what of it is stale."""

import argparse
from pathlib import Path

from vllm_watch.cli import exit_status

HELP = """\
Shows who holds the memory of this host's GPUs, with a verdict and its reasons for each holder:
vllm (of a living engine), active, stale (with what to do about it) or unknown. It looks for a few
seconds, to see who works; what is told only by a long silence (an idle notebook) needs --watch, the
daemon, or a recording. The exit status is 1 if something is stale.

examples:
  vllm-watch gpus                                   a look of four seconds
  vllm-watch gpus --watch                           look on, until Ctrl-C
  vllm-watch gpus --json | jq '.gpus[].holders[] | select(.verdict == "stale")'
  vllm-watch gpus --trace incident.jsonl.gz --at 1771854892"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object (with --watch one a look)")
    add("--watch", action="store_true", help="look again every two seconds until Ctrl-C")
    add("--trace", metavar="FILE", type=Path, help="judge the GPUs of a recording instead")
    add("--at", metavar="T", type=float,
        help="with --trace: the moment to judge, as Unix seconds or as seconds from its start (default: its end)")  # fmt: skip
    add("--procfs", metavar="DIR", type=Path, default=Path("/proc"),
        help="the host's /proc, where it is mounted elsewhere")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Judge and show; 1 if something is stale."""
    from vllm_watch.cli import gpus_judging  # noqa: PLC0415 - not needed for a help text

    stale = gpus_judging.show(
        as_json=arguments.json,
        watch=arguments.watch,
        trace=arguments.trace,
        at=arguments.at,
        procfs=arguments.procfs,
    )
    return exit_status.FOUND if stale else exit_status.FINE
