"""Approve the restart that an incident waits for."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Approves the restart that an incident waits for. The restart begins at once. If a window or a
cooldown delays it, the approval stays valid until then, or until the incident ends.

examples:
  vllm-watch approve engine_stalled-1764633600-1a2b3c4d --token-file ~/.config/vllm-watch.token
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("incident", metavar="INCIDENT", help="the incident's id, from the page, the log or /api/v1/incidents")  # fmt: skip
    daemon_requests.add_daemon(parser, "incidents/{incident}/approve")


run = daemon_requests.ask
