"""Pause all restarts."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Keeps the daemon from restarting anything, a person's request included. An attempt that is under way goes on.

examples:
  vllm-watch pause --reason "we move the rack" --minutes 240
  vllm-watch pause --reason "until the new driver is in"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="why; it is shown with every refusal"
    )
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=daemon_requests.minutes,
        help="for how long (default: until resume)",
    )
    daemon_requests.add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    body = {"reason": arguments.reason, "minutes": arguments.minutes}
    return daemon_requests.ask(arguments, daemon_requests.path("pause"), body)
