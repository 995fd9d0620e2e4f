"""Print a shell's completion script."""

import argparse
import importlib.util
from pathlib import Path

from vllm_watch.cli.helpers import commands, exit_status
from vllm_watch.errors import WatchError

HELP = """\
Prints a script that completes commands, options and files in your shell. Regenerate it after each upgrade. The
script does not start Python while you type. Generating it needs the extra `completion`
(pip install 'vllm-watch[completion]').

examples:
  vllm-watch completion bash > ~/.local/share/bash-completion/completions/vllm-watch
  source <(vllm-watch completion bash)                 # in this shell only
  vllm-watch completion zsh > "${fpath[1]}/_vllm-watch"
  vllm-watch completion fish > ~/.config/fish/completions/vllm-watch.fish
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish"
    )


def run(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("shtab") is None:
        remedy = "pip install 'vllm-watch[completion]'"
        raise WatchError("completion needs shtab, which is not installed", remedy)
    import shtab  # noqa: PLC0415 - an extra

    if arguments.shell not in shtab.SUPPORTED_SHELLS:
        cause = f"the installed shtab {shtab.__version__} does not support {arguments.shell}"
        raise WatchError(cause, "pip install --upgrade shtab")
    parser = argparse.ArgumentParser(prog="vllm-watch", allow_abbrev=False)
    subparsers = parser.add_subparsers()
    for name, summary in commands.COMMANDS.items():
        command = commands.load(name)
        sub = subparsers.add_parser(name, help=summary, description=summary)
        command.add_arguments(sub)
        for action in sub._actions:
            if action.type is Path:
                kind = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
                vars(action)["complete"] = kind
    print(shtab.complete(parser, shell=arguments.shell))
    return exit_status.FINE
