"""End a pause of restarts and close the circuit breakers."""

import argparse

from vllm_watch.cli.helpers import daemon_requests

HELP = f"""\
Ends a pause and closes every circuit breaker: another restart is allowed after one that did not help. It also
accepts the lost entries of a damaged journal. Budgets and cooldowns stay as they are.

examples:
  vllm-watch resume --reason "the broken cable is out"
{daemon_requests.EXIT}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="the reason, for the journal")
    daemon_requests.add_daemon(parser, "resume", "reason")


run = daemon_requests.ask
