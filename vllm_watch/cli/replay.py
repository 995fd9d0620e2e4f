"""`vllm-watch replay`: run a recording through the same judgement as live."""

import argparse
from pathlib import Path

from vllm_watch.cli.helpers import exit_status
from vllm_watch.cli.helpers.replaying import replay

HELP = """\
Run a recording through the same judgement as live, as fast as it goes, and say what it holds. The
exit status is 0 whatever that is; a recording that cannot be read is an error (2).

examples:
  vllm-watch replay incident.jsonl.gz                  a summary for people
  vllm-watch replay incident.jsonl.gz --json           its incidents, one JSON object per line
  vllm-watch replay incident.jsonl.gz --state --json   the state at its end, one object per target"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a .jsonl.gz or .jsonl recording")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="windows, objectives and thresholds to judge by"
    )
    parser.add_argument(
        "--json", action="store_true", help="print incidents as JSON lines, nothing else"
    )
    parser.add_argument(
        "--state", action="store_true", help="print the state at the end, always as JSON"
    )


def run(arguments: argparse.Namespace) -> int:
    """Replay; the exit status is 0 whatever the recording holds."""
    prints = "incidents" if arguments.json else "summary"
    replay(arguments.trace, arguments.config, "state" if arguments.state else prints)
    return exit_status.FINE
