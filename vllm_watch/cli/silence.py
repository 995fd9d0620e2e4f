"""Prevent restarts for one incident."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Prevents an incident from restarting anything for a while. It stays open and visible; to silence its alert, use
Alertmanager.

examples:
  vllm-watch silence engine_stalled-1764633600-1a2b3c4d --minutes 90 --reason "inspecting it with py-spy"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("incident", metavar="INCIDENT", help="the incident's id")
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=daemon_requests.minutes,
        default=60.0,
        help="for how long (default 60)",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", required=True, help="the reason, for the journal"
    )
    daemon_requests.add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    body = {"reason": arguments.reason, "minutes": arguments.minutes}
    return daemon_requests.ask(
        arguments, daemon_requests.path("incidents", arguments.incident, "silence"), body
    )
