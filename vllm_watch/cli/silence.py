"""Prevent restarts for one incident."""

import argparse

from vllm_watch.cli.helpers import daemon_requests, options

HELP = f"""\
Prevents an incident from restarting anything for a while. It stays open and visible; to silence its alert, use
Alertmanager.

examples:
  vllm-watch silence engine_stalled-1764633600-1a2b3c4d --minutes 90 --reason "inspecting it with py-spy"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("incident", metavar="INCIDENT", help="the incident's id")
    add("--minutes", metavar="N", type=options.minutes, default=60.0,
        help="for how long (default 60)")  # fmt: skip
    add("--reason", metavar="TEXT", required=True, help="the reason, for the journal")
    daemon_requests.add_daemon(parser, "incidents/{incident}/silence", "reason", "minutes")


run = daemon_requests.ask
