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

DEFAULT_REASON = "asked for by hand"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="the target's name")
    parser.add_argument(
        "--reason", metavar="TEXT", default=DEFAULT_REASON,
        help="the reason, for the journal (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--override-freeze",
        metavar="REASON",
        help="restart despite a freeze or a closed window, for this reason",
    )
    daemon_requests.add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    body = {"reason": arguments.reason, "override_freeze": arguments.override_freeze}
    return daemon_requests.ask(
        arguments, daemon_requests.path("targets", arguments.target, "restart"), body
    )
