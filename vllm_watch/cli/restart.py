"""Restart a target by hand, after the daemon's checks."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Asks the daemon to restart a target now, with the hook that is configured for it. The same checks
apply as to a restart for an incident, but it needs no approval, it is allowed after a restart that did not help, and
--override-freeze overrides windows and freezes.

examples:
  vllm-watch restart llama --reason "driver update" --token-file ~/.config/vllm-watch.token
  vllm-watch restart llama --override-freeze "it serves no requests as it is"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="TARGET", help="the target's name")
    add("--reason", metavar="TEXT", default="asked for by hand",
        help="the reason, for the journal (default: %(default)s)")  # fmt: skip
    add("--override-freeze", metavar="REASON",
        help="restart despite a freeze or a closed window, for this reason")  # fmt: skip
    daemon_requests.add_daemon(parser, "targets/{target}/restart", "reason", "override_freeze")


run = daemon_requests.ask
