"""Writes docs/cli.md from the commands themselves, so that it cannot name an argument that there is not."""

import argparse
import importlib
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

from vllm_watch.cli.helpers.commands import COMMANDS

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

PAGE = Path(__file__).parent / "cli.md"

HEAD = """\
# Command line

<!-- Made by docs/generate_cli.py from vllm_watch/cli/. Do not edit. -->

This page lists every command and option, and explains the less obvious ones; `vllm-watch COMMAND --help` explains all, with examples. Errors go to stderr, with cause and remedy.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | the command found a problem, or was refused |
| 2 | wrong usage or configuration; a file or server that does not exist |
| 3 | the launch would fail, the model does not fit, no GPU driver |
| 130, 141 | Ctrl-C; the output was closed |
"""


COMMON = """
## Options of many commands

Connection options are `--url`, `--ca-file`, `--cert-file` and `--credentials-file`.

"""
COMMON_TIMES = 2
CONNECTION = ("--ca-file", "--cert-file", "--credentials-file")
WORDS_MIN = 12  # of an option's help: a shorter one adds little to its name, and --help has it


def text() -> str:
    """The whole page."""
    rows = {name: [row(action) for action in arguments(name)] for name in COMMANDS}
    times = Counter(each for of in rows.values() for each in of)
    common = {each for each, count in times.items() if count >= COMMON_TIMES}
    shared = "".join(
        f"{each}\n" for each in {option(each): each for each in times if each in common}.values()
    )
    return HEAD + COMMON + shared + "".join(section(name, rows[name], common) for name in COMMANDS)


def arguments(name: str) -> list[argparse.Action]:
    """What a command takes."""
    parser = argparse.ArgumentParser(add_help=False)
    command(name).add_arguments(parser)
    return parser._actions


def command(name: str) -> ModuleType:
    """Its module."""
    return importlib.import_module(f"vllm_watch.cli.{name.replace('-', '_')}")


def section(name: str, rows: list[str], common: set[str]) -> str:
    """Return one command: its purpose and its arguments."""
    about = COMMANDS[name]
    lines = [f"\n## {name}\n", f"{about[0].upper()}{about[1:]}.\n"]
    short = {each for each in rows if each in common or len(each.partition(": ")[2].split()) < WORDS_MIN}  # fmt: skip
    own = [each for each in rows if each not in short]
    named = [option(each) for each in rows if each in short]
    connection = set(CONNECTION) <= set(named)
    shown = [f"`{each}`" for each in named if not connection or each not in (*CONNECTION, "--url")]
    also = ", ".join([*shown, *(["connection options"] if connection else [])])
    if also:
        own.append(f"- {'also ' if own else ''}{also}")
    if own:
        lines += [*own, ""]
    return "\n".join(lines)


def option(row: str) -> str:
    """Return the first name of the option of a row."""
    return row.split("`")[1].split(maxsplit=1)[0].rstrip(",")


def row(action: argparse.Action) -> str:
    """An argument as it is written, and its help with the default filled in."""
    value = action.metavar or (action.dest if action.nargs != 0 else "")
    shown = " ".join([", ".join(action.option_strings), str(value)]).strip()
    said = " ".join(((action.help or "") % {"default": action.default}).split())
    return f"- `{shown}`: {said}"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: text()}))
