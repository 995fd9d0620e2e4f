"""Pause all restarts."""

import argparse

from vllm_watch.cli.helpers import daemon_requests, options

HELP = f"""\
Stops all restarts, including those requested by hand. A restart that is under way continues.

examples:
  vllm-watch pause --reason "we move the rack" --minutes 240
  vllm-watch pause --reason "until the new driver is in"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--reason", metavar="TEXT", required=True, help="the reason, shown with every refusal")
    add("--minutes", metavar="N", type=options.minutes, help="for how long (default: until resume)")
    daemon_requests.add_daemon(parser, "pause", "reason", "minutes")


run = daemon_requests.ask
