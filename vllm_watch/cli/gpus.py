"""Show the processes that hold each GPU's memory."""

import argparse
from pathlib import Path

from vllm_watch.cli.helpers import exit_status, gpu_holders, options
from vllm_watch.errors import WatchError

LOOK_SECONDS = 4.0
"""By default, --reclaim polls for this long before it refuses a process."""

TERM_SECONDS = 10.0
"""Seconds from SIGTERM to SIGKILL. An engine core that can still exit needs less time."""

PID_MAX = 4_194_304  # Linux: PID_MAX_LIMIT

_seconds = options.number(
    lambda value: 0 < value <= options.SECONDS_MAX,
    f"is not a number of seconds\n→ write seconds above 0 and up to {options.SECONDS_MAX:g}",
)

HELP = """\
Shows who holds the memory of this host's GPUs, with a verdict and its reasons for each holder:
vllm (of a living engine), active, stale (with what to do about it) or unknown. It polls for a few
seconds to see which processes work; an idle notebook is recognized only after a long time without work: by
--watch, the daemon, or a recording. The exit status is 1 if something is stale, and 3 if there is no NVIDIA driver.

With --reclaim it ends one stale process and the stale ones that it started: it polls again, shows what
would be freed and whose it is, asks, sends SIGTERM, after a while SIGKILL, and asks the driver whether the
memory came back. A process that is not stale is refused. Each step is written to the journal (vllm-watch journal)
before it is done. The exit status is 0 if all memory was freed, 1 if not, or if refused.

examples:
  vllm-watch gpus                                   # polls for four seconds
  vllm-watch gpus --watch                           # polls until Ctrl-C
  vllm-watch gpus --json | jq '.gpus[].holders[] | select(.verdict == "stale")'
  vllm-watch gpus --reclaim 4711                    # end that process, if it is stale; asks first
  vllm-watch gpus --trace incident.jsonl.gz --at 1771854892"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="one JSON object (with --watch one per poll)")
    add("--watch", action="store_true", help="poll every two seconds until Ctrl-C")
    add("--trace", metavar="FILE", type=Path, help="judge the GPUs of a recording instead")
    add("--at", metavar="T", type=float,
        help="with --trace: the moment to judge, as Unix seconds or as seconds from its start (default: its end)")  # fmt: skip
    add("--procfs", metavar="DIR", type=Path, default=Path("/proc"),
        help="the host's /proc, if it is mounted elsewhere")  # fmt: skip
    add("--reclaim", metavar="PID", type=_pid, help="end this process, if it is stale, and confirm that its memory came back")  # fmt: skip
    add("--yes", action="store_true", help="with --reclaim: do not ask")
    add("--look", metavar="SECONDS", type=_seconds, default=LOOK_SECONDS,
        help="with --reclaim: refuse after polling this long (default and minimum %(default)g; an idle notebook needs 1800)")  # fmt: skip
    add("--term-wait", metavar="SECONDS", type=_seconds, default=TERM_SECONDS,
        help="with --reclaim: time from SIGTERM to SIGKILL (default %(default)g)")  # fmt: skip
    add("--state-dir", metavar="DIR", type=Path,
        help="with --reclaim: the journal's folder (default: state_dir in $VLLM_WATCH_CONFIG, else ~/.local/state/vllm-watch)")  # fmt: skip
    add("--no-journal", action="store_true", help="with --reclaim: do not write to the journal")


def run(arguments: argparse.Namespace) -> int:
    """Return 1 if memory is stale, or 3 without a driver."""
    if arguments.reclaim is None:
        if arguments.yes:  # otherwise an operator could believe that a process was ended
            raise WatchError("--yes without --reclaim", "name the process: --reclaim PID")
        return gpu_holders.show(arguments)
    from vllm_watch.cli.helpers import reclaim  # noqa: PLC0415
    from vllm_watch.reclaim.reclaim import Patience  # noqa: PLC0415

    for given, name in ((arguments.watch, "--watch"), (arguments.trace, "--trace")):
        if given:
            remedy = "--reclaim acts on this host now: leave one out"
            raise WatchError(f"--reclaim with {name}", remedy)
    arguments.look = max(arguments.look, LOOK_SECONDS)
    freed = reclaim.reclaim(arguments, Patience(term_seconds=arguments.term_wait))
    return exit_status.FINE if freed else exit_status.FOUND


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= PID_MAX:
        remedy = "write the PID of a stale holder: vllm-watch gpus lists them"
        raise argparse.ArgumentTypeError(f"'{text}' is not a process ID\n→ {remedy}")
    return int(text)
