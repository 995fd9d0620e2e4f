"""The command line. To start fast, it imports only the requested command."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn, TextIO

from vllm_watch import __version__
from vllm_watch.cli.helpers import exit_status, terminal
from vllm_watch.cli.helpers.commands import COMMANDS, Command, load
from vllm_watch.errors import WatchError
from vllm_watch.support.redaction import redacted
from vllm_watch.support.visible import visible_lines

_HELP = "Watches vLLM engines and their GPUs, and reports faults with the evidence."
_EXAMPLES = """\
examples:
  vllm-watch demo                                    no vLLM at hand? start here
  vllm-watch run --target http://127.0.0.1:8000      watch the vLLM on this host
  vllm-watch run --config /etc/vllm-watch/vllm-watch.yaml  watch the targets of a file
  vllm-watch top                                     watch it from another terminal
  vllm-watch read http://127.0.0.1:8000/metrics      one scrape, no daemon

exit status: 0 fine, 1 found something, 2 wrong usage or configuration, 3 no-go
"""


_ALIKE_MAX = 3


_ARGPARSE = {
    r"argument (?:([^:]+): )?invalid choice: (.*) \(choose from (.*)\)": r"\1: there is no \2\n→ write one of \3",
    r"argument ([^:]+): invalid int value: (.*)": r"\1: \2 is not a whole number\n→ write a whole number: 2",
    r"argument ([^:]+): invalid float value: (.*)": r"\1: \2 is not a number\n→ write a number: 0.9",
    r"argument ([^:]+): expected (?:one|at least one) argument": r"\1 needs a value",
    r"the following arguments are required: (.*)": r"required, but missing: \1",
    r"argument ([^:]+): (.*)": r"\1: \2",
}  # fmt: skip
"""argparse's message → our text. The first match is used."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        for theirs, ours in _ARGPARSE.items():
            if found := re.fullmatch(theirs, message, re.DOTALL):
                message = found.expand(ours)
                break
        cause, _, remedy = message.partition("\n→ ")
        raise WatchError(cause, remedy or f"see {self.prog} --help")

    @property
    def options(self) -> list[str]:
        return [word for action in self._actions for word in action.option_strings]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: sys.argv) and return its exit status."""
    try:
        status = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()  # so that a closed pipe is handled below
    except WatchError as error:
        _print_error(error, sys.stderr)
        return exit_status.WRONG_USAGE
    except KeyboardInterrupt:
        return exit_status.INTERRUPTED
    except BrokenPipeError:
        # Otherwise the interpreter flushes stdout at exit and prints a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_status.PIPE_CLOSED
    return status


def _run(argv: list[str]) -> int:
    name = next((argument for argument in argv if not argument.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        remedy = f"did you mean {close[0]}?" if close else "see vllm-watch --help"
        raise WatchError(f"there is no command '{name}'", remedy)
    command = load(name) if name is not None else None
    parser, known = _parser(name, command)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        help_of = f"{parser.prog} {name}" if name else parser.prog
        close = get_close_matches(unknown[0].partition("=")[0], known, n=1)
        remedy = (
            f"did you mean {close[0]}? See {help_of} --help" if close else f"see {help_of} --help"
        )
        if unknown[0].startswith(("http://", "https://")) and {"--target", "--url"} & set(known):
            remedy = f"write {'--target' if '--target' in known else '--url'} {unknown[0]}"
        elif not unknown[0].startswith("-"):
            remedy = f"leave it out, or {remedy}"
        raise WatchError(f"there is no argument '{unknown[0]}'", remedy)
    if command is None:
        parser.print_help(sys.stderr)
        return exit_status.WRONG_USAGE
    return command.run(arguments)


def _parser(name: str | None, command: Command | None) -> tuple[_Parser, list[str]]:
    raw = argparse.RawDescriptionHelpFormatter
    listed = "".join(f"  {each:14}{summary}\n" for each, summary in COMMANDS.items())
    parser = _Parser(
        prog="vllm-watch",
        usage="vllm-watch COMMAND ...",
        description=f"{_HELP}\n\ncommands:\n{listed}",
        epilog=_EXAMPLES,
        formatter_class=raw,
        allow_abbrev=False,
    )
    version = f"vllm-watch {__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version")
    if name is not None and command is not None:
        sub = parser.add_subparsers(help=argparse.SUPPRESS).add_parser(
            name,
            prog=f"vllm-watch {name}",
            description=command.HELP,
            formatter_class=raw,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
        return parser, sub.options
    return parser, parser.options


def _print_error(error: WatchError, stream: TextIO) -> None:
    coloured = terminal.takes_colours(stream)
    bold, dim, plain = ("\033[1;31m", "\033[2m", "\033[0m") if coloured else ("", "", "")
    by_remedy: dict[str, list[str]] = {}
    for each in getattr(error, "problems", (error,)):
        remedy, cause = (
            visible_lines(redacted(each_text)) for each_text in (each.remedy, each.cause)
        )
        by_remedy.setdefault(remedy, []).append(cause)
    for remedy, causes in by_remedy.items():
        stream.writelines(f"{bold}vllm-watch:{plain} {cause}\n" for cause in causes[:_ALIKE_MAX])
        left = len(causes) - _ALIKE_MAX
        more = f" (the same for {left} more)" if left > 0 else ""
        stream.write(f"{dim}  → {remedy}{more}{plain}\n")


if __name__ == "__main__":
    sys.exit(main())
