"""Writes docs/cli.md from the commands themselves, so that it cannot name an argument that there is not.

python docs/generate_cli.py            write it
python docs/generate_cli.py --check    exit 1 when it is stale
"""

import argparse
import importlib
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

from vllm_watch.cli.helpers.commands import COMMANDS

PAGE = Path(__file__).parent / "cli.md"

HEAD = """\
# Command line

<!-- Made by docs/generate_cli.py from vllm_watch/cli/. Do not edit. -->

`vllm-watch COMMAND --help` says more, with examples. Errors go to stderr, as a cause and a remedy.

| exit status | means |
|---|---|
| 0 | fine |
| 1 | it ran, and found what it looks for (where a command says so) |
| 2 | wrong usage or configuration, or a file or server that was named and is not there |
| 3 | no-go |
| 130, 141 | ended by Ctrl-C; what it wrote to was closed |
"""


COMMON = """
## Options of many commands

Told here once; commands name them.

"""
COMMON_TIMES = 2
SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
SENTENCES_MAX = 2  # of what a command does; --help has the others


def text() -> str:
    """The whole page."""
    rows = {name: [row(action) for action in arguments(name)] for name in COMMANDS}
    times = Counter(each for of in rows.values() for each in of)
    common = {each for each, count in times.items() if count >= COMMON_TIMES}
    shared = "".join(f"{each}\n" for each in times if each in common)
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
    """One command: what it does and its arguments."""
    about, _, rest = command(name).HELP.strip().partition("\n\n")
    first = SENTENCE.split(" ".join(about.split()))[:SENTENCES_MAX]
    lines = [f"\n## {name}\n", " ".join(first) + "\n"]
    own = [each for each in rows if each not in common]
    also = [f"`{each.split('`')[1].split()[0]}`" for each in rows if each in common]
    if also:
        own.append(f"- also {', '.join(also)}")
    if own:
        lines += [*own, ""]
    told = [part for part in rest.split("\n\n") if part.startswith("exit status")]
    if told:
        lines += [" ".join(part.split()) + "\n" for part in told]
    return "\n".join(lines)


def row(action: argparse.Action) -> str:
    """An argument as it is written, and its help with the default filled in."""
    value = action.metavar or (action.dest if action.nargs != 0 else "")
    shown = " ".join([", ".join(action.option_strings), str(value)]).strip()
    said = (action.help or "") % {"default": action.default}
    return f"- `{shown}`: {said}"


def main() -> int:
    """Write the page, or check it."""
    if "--check" not in sys.argv:
        PAGE.write_text(text())
        return 0
    if PAGE.exists() and PAGE.read_text() == text():
        return 0
    sys.stderr.write(f"{PAGE} is stale: run python docs/generate_cli.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
