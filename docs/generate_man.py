"""Writes the manual pages from the commands' own --help and from the schema of the configuration."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generate_cli import arguments, command, row
from generate_configuration import EXAMPLE
from generate_schema import schema
from generated import write_or_check

from vllm_watch import __version__
from vllm_watch.cli.helpers.commands import COMMANDS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
RELEASED = re.findall(r"^## \[\d.*\] - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
FOLDER = ROOT / "docs/man"


def commands() -> Iterator[str]:
    """Yield vllm-watch(1): each command as its --help has it."""
    yield from head("VLLM-WATCH", 1, "watch vLLM engines and their GPUs, and restart them safely")
    yield from (".SH SYNOPSIS", ".B vllm-watch", escaped("COMMAND [OPTION]..."), ".SH COMMANDS")
    for name in COMMANDS:
        about, _, rest = command(name).HELP.strip().partition("\n\n")
        yield from (f".SS {escaped(name)}", escaped(" ".join(about.split())))
        for action in arguments(name):
            shown, _, text = row(action)[3:].partition("`: ")
            yield from (".TP", rf"\fB{escaped(shown)}\fR", escaped(text) or r"\&")
        for part in rest.split("\n\n"):
            if part.startswith("examples:"):
                yield from (".PP", "Examples:", *literal(part.partition("\n")[2]))
            elif part:
                yield from (".PP", escaped(" ".join(part.split())))
    yield from (".SH SEE ALSO", ".BR vllm-watch.yaml (5)")


def configuration() -> Iterator[str]:
    """Yield vllm-watch.yaml(5): each key as the schema has it."""
    whole = schema()
    yield from head("VLLM-WATCH.YAML", 5, "configuration of vllm-watch")
    yield ".SH DESCRIPTION"
    yield escaped(
        "A YAML file, named by --config or VLLM_WATCH_CONFIG. No file is needed: without one, vllm-watch run"
        " finds the vLLM servers of this host. vllm-watch check-config FILE validates it."
    )
    yield from section(whole, whole, "")
    yield from (".SH EXAMPLES", *literal(EXAMPLE), ".SH SEE ALSO", ".BR vllm-watch (1)")


def head(name: str, number: int, summary: str) -> Iterator[str]:
    """Yield the title and the name, as man(7) wants them."""
    yield from (
        r".\" Made by docs/generate_man.py. Do not edit.",
        f'.TH {name} {number} {RELEASED} "vllm-watch {__version__}"',
    )
    yield from (
        ".SH NAME",
        rf"{name.lower()} \- {escaped(summary)}".replace("vllm-watch", r"vllm\-watch"),
    )


def section(whole: Mapping[str, Any], model: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the keys of one section, then the sections below it."""
    below = {}
    yield f".SH {escaped(path.upper() or 'KEYS')}"
    if path:
        yield escaped(model.get("description", ""))
    for key, each in model.get("properties", {}).items():
        inner = each if "$ref" in each else each.get("items", {})
        if "$ref" in inner:
            below[key] = whole["$defs"][inner["$ref"].rpartition("/")[2]]
            continue
        default = each.get("default")
        text = each.get("description", "")
        shown = f"{key} (default {default})" if default not in (None, "", [], {}) else key
        yield from (".TP", rf"\fB{escaped(shown)}\fR", escaped(text) or r"\&")
    for key, inner in below.items():
        yield from section(whole, inner, f"{path}.{key}".removeprefix("."))


def literal(text: str) -> Iterator[str]:
    """Yield an example as it is written."""
    yield from (
        ".RS",
        ".EX",
        *(escaped(line) for line in text.strip("\n").split("\n")),
        ".EE",
        ".RE",
    )


def escaped(text: str) -> str:
    """Return Markdown text that troff prints as it is: without marks of code, and links as their texts."""
    text = LINK.sub(r"\1", text).replace("`", "")
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq")
    return "\n".join(rf"\&{line}" if line.startswith(".") else line for line in text.split("\n"))


if __name__ == "__main__":
    pages = {"vllm-watch.1": commands(), "vllm-watch.yaml.5": configuration()}
    sys.exit(
        write_or_check({FOLDER / name: "\n".join(lines) + "\n" for name, lines in pages.items()})
    )
