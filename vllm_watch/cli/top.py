"""Show a running vllm-watch live in the terminal."""

import argparse
import importlib.util
import sys

from vllm_watch.cli.helpers import connection, exit_status
from vllm_watch.cli.helpers.top.status import Daemon

HELP = """\
Shows a running vllm-watch in the terminal: what is wrong first, with its evidence and what to do; the
engines, GPUs and who holds them, why nothing is restarted now, and the state of the watcher itself. It needs a
daemon: start one with `vllm-watch run` or `vllm-watch demo`. The live view needs the extra `top`
(pip install 'vllm-watch[top]'). --once, --json and output to a pipe print once and exit, without it. NO_COLOR=1
turns colours off.

examples:
  vllm-watch top
  vllm-watch top --url http://gpu-7:9470
  vllm-watch top --once | mail -s 'engines' oncall@example.org
  vllm-watch top --json | jq '.wrong[] | [.severity, .target, .title]'
  vllm-watch top --url https://gpu-7:9470 --ca-file ca.pem --credentials-file ~/.config/vllm-watch.user

keys: arrows select, Enter opens, s sorts, / filters, ? lists all keys, q quits
"""


_NOT_LIVE = (
    "vllm-watch: the live view needs textual (pip install 'vllm-watch[top]'); this is printed once"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    connection.add_daemon(parser)
    parser.add_argument("--once", action="store_true", help="print once as text and exit")
    parser.add_argument("--json", action="store_true", help="print one JSON object and exit")


def run(arguments: argparse.Namespace) -> int:
    daemon = connection.of(arguments)
    once = arguments.once or arguments.json or not sys.stdout.isatty()
    if not once and importlib.util.find_spec("textual") is None:
        print(_NOT_LIVE, file=sys.stderr)
        once = True
    if once:
        from vllm_watch.cli.helpers.top import once as top_once  # noqa: PLC0415 - pydantic is slow

        top_once.show(Daemon.at(daemon), as_json=arguments.json)
        return exit_status.FINE
    # textual is an extra.
    from vllm_watch.cli.helpers.top.app import TopApp  # noqa: PLC0415

    TopApp(Daemon.at(daemon)).run()
    return exit_status.FINE
