"""top: a running vllm-watch, live in the terminal."""

import argparse
import importlib.util
import sys

from vllm_watch.cli.helpers import connection, exit_status
from vllm_watch.cli.helpers.top.status import Daemon
from vllm_watch.errors import WatchError

HELP = """\
Look at a running vllm-watch in the terminal: what is wrong first, with its evidence and what to do; the
engines, GPUs and who holds them, why nothing is restarted now, and how the watcher itself does. Needs the extra
`top` (pip install 'vllm-watch[top]') and a daemon: start one with `vllm-watch run` or `vllm-watch demo`.
With --once, or if the output is not a terminal, it prints once as text. NO_COLOR takes the colours away.

examples:
  vllm-watch top
  vllm-watch top --url http://gpu-7:9470
  vllm-watch top --once | mail -s 'engines' oncall@example.org
  vllm-watch top --json | jq '.wrong[] | [.severity, .target, .title]'
  vllm-watch top --url https://gpu-7:9470 --ca-file ca.pem --credentials-file ~/.config/vllm-watch.user

keys: arrows select, s sorts, / filters, q quits
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which daemon to look at."""
    connection.add_daemon(parser)
    parser.add_argument("--once", action="store_true", help="print once as text and exit")
    parser.add_argument(
        "--json", action="store_true", help="print once as one JSON object and exit"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show it until the user quits."""
    daemon = connection.of(arguments)
    if importlib.util.find_spec("textual") is None:
        raise WatchError(
            "top needs textual, which is not installed", "pip install 'vllm-watch[top]'"
        )
    # textual, and rich, which it brings, are an extra: only what follows may import them.
    if arguments.once or arguments.json or not sys.stdout.isatty():
        from vllm_watch.cli.helpers.top import once as top_once  # noqa: PLC0415

        top_once.show(Daemon.at(daemon), as_json=arguments.json)
        return exit_status.FINE
    from vllm_watch.cli.helpers.top.app import TopApp  # noqa: PLC0415

    TopApp(Daemon.at(daemon)).run(mouse=False)  # so that text can be selected and copied
    return exit_status.FINE
