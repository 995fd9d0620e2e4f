"""top: a running vllm-watch, live in the terminal."""

import argparse
import importlib.util

from vllm_watch.cli import connection, exit_status
from vllm_watch.errors import WatchError

HELP = """\
Look at a running vllm-watch in the terminal: engines, GPUs and who holds them. Needs the extra `top`
(pip install 'vllm-watch[top]') and a daemon: start one with `vllm-watch run` or `vllm-watch demo`.

examples:
  vllm-watch top
  vllm-watch top --url http://gpu-7:9470
  vllm-watch top --url https://gpu-7:9470 --ca-file ca.pem --credentials-file ~/.config/vllm-watch.user

keys: arrows select, s sorts, / filters, q quits
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which daemon to look at."""
    connection.add_daemon(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show it until the user quits."""
    daemon = connection.of(arguments)
    if importlib.util.find_spec("textual") is None:
        raise WatchError(
            "top needs textual, which is not installed", "pip install 'vllm-watch[top]'"
        )
    # Loaded here, because only this command needs them and they may be absent.
    from vllm_watch.cli.top_app import TopApp  # noqa: PLC0415
    from vllm_watch.cli.top_status import Daemon  # noqa: PLC0415

    TopApp(Daemon.at(daemon)).run(mouse=False)  # so that text can be selected and copied
    return exit_status.FINE
