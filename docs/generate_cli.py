"""Writes docs/cli.md from the commands themselves, so that it cannot name an argument that there is not.

python docs/generate_cli.py            write it
python docs/generate_cli.py --check    exit 1 when it is stale
"""

import argparse
import importlib
import sys
from pathlib import Path

from vllm_watch.__main__ import COMMANDS

PAGE = Path(__file__).parent / "cli.md"

HEAD = """\
# Command line

<!-- Made by docs/generate_cli.py from vllm_watch/cli/. Do not edit. -->

`vllm-watch COMMAND --help` says the same as this page. Errors go to stderr, as a cause and a remedy.

| exit status | means |
|---|---|
| 0 | fine |
| 1 | it ran, and found what it looks for (where a command says so) |
| 2 | wrong usage or configuration, or a file or server that was named and is not there |
| 3 | no-go |
| 130, 141 | ended by Ctrl-C; what it wrote to was closed |
"""


def text() -> str:
    """The whole page."""
    return HEAD + "".join(section(name) for name in COMMANDS)


def section(name: str) -> str:
    """One command: what it does, its arguments, its examples."""
    module = importlib.import_module(f"vllm_watch.cli.{name.replace('-', '_')}")
    parser = argparse.ArgumentParser(add_help=False)
    module.add_arguments(parser)
    about, _, rest = module.HELP.strip().partition("\n\n")
    lines = [f"\n## {name}\n", " ".join(about.split()) + "\n"]
    rows = [row(action) for action in parser._actions]
    if rows:
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    if rest:
        lines += ["```", rest.strip(), "```", ""]
    return "\n".join(lines)


def row(action: argparse.Action) -> str:
    """An argument as it is written, and its help with the default filled in."""
    value = action.metavar or (action.dest if action.nargs != 0 else "")
    shown = " ".join([", ".join(action.option_strings), str(value)]).strip()
    said = (action.help or "") % {"default": action.default}
    return f"| `{shown}` | {said} |".replace("FILE|URL", "FILE\\|URL")


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
