"""Pause all restarts."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Stops all restarts, including those requested by hand. A restart that is under way continues.

examples:
  vllm-watch pause --reason "we move the rack" --minutes 240
  vllm-watch pause --reason "until the new driver is in"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="the reason, shown with every refusal"
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
