"""Writes docs/thresholds.md from the code: every number that judgement rests on.

A threshold is a number that a module of `detectors`, `signals` or `incidents` names at its top level, or a
field of a detector's Settings. The text that follows it in the code is its reason; several that stand
together may share one. Reasons stay in the code; the page has names and values.
"""

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generated import write_or_check

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "thresholds.md"
FOLDERS = ("detectors", "signals", "incidents")

HEAD = """\
# Thresholds

<!-- Made by docs/generate_thresholds.py from the code. Do not edit. -->

Look up the numbers that detectors use. None needs tuning: values that differ between engines are learnt for each engine. The reasons are
in the code, below each number. You can change only the [detectors' keys](configuration.md#detectors).
"""

HTTP = ("_SERVER_ERROR", "STATE_VERSION")
"""Numbers that are names, not thresholds."""

TITLES = {
    "detectors": "Detectors",
    "signals": "Signals, the input of detectors",
    "incidents": "Incidents over time",
}


@dataclass(frozen=True)
class Threshold:
    """One named number (or a table of numbers)."""

    name: str
    value: Any
    reason: str  # empty: the code gives none


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for folder in FOLDERS:
        parts.append(f"## {TITLES[folder]}\n")
        parts += [_section(file) for file in files(folder) if thresholds(file)]
    return "\n".join(parts)


def files(folder: str) -> list[Path]:
    """The modules of a folder that say anything."""
    found = sorted((ROOT / "vllm_watch" / folder).glob("*.py"))
    return [file for file in found if file.name != "__init__.py"]


def _section(file: Path) -> str:
    runbook = ROOT / "docs" / "detectors" / f"{file.stem}.md"
    title = f"[{file.stem}](detectors/{file.stem}.md)" if runbook.exists() else file.stem
    named = [each for each in thresholds(file) if each.name.upper() == each.name]
    numbers = ", ".join(f"`{each.name}={_value(each)}`" for each in named)
    return f"**{title}**: {numbers}.\n" if named else ""


def thresholds(file: Path) -> list[Threshold]:
    """What a module names, in its order."""
    tree = ast.parse(file.read_text())
    module = importlib.import_module(f"vllm_watch.{file.parent.name}.{file.stem}")
    found = [
        Threshold(name, value, reason)
        for name, reason in _reasons(tree.body)
        if name not in HTTP and _is_number(value := getattr(module, name, None))
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings":
            fields = module.Settings.model_fields
            found += [
                Threshold(name, fields[name].default, reason)
                for name, reason in _reasons(node.body)
                if name in fields and _is_number(fields[name].default)
            ]
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_number, value.values()))
    return isinstance(value, Real) and not isinstance(value, bool)


def _reasons(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """(name, text that follows it) of each assignment; a row of assignments shares the text after it."""
    waiting: list[str] = []
    for node in body:
        names = list(_names(node))
        if names:
            waiting += names
            continue
        text = ""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = " ".join(str(node.value.value).split())
        yield from ((name, text) for name in waiting)
        waiting = []
    yield from ((name, "") for name in waiting)


def _names(node: ast.stmt) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(each, ast.Name):
                yield each.id


def _value(threshold: Threshold) -> str:
    value = threshold.value
    if isinstance(value, Mapping):
        names = {key: key if isinstance(key, str) else "+".join(map(str, key)) for key in value}
        return ", ".join(f"{names[key]} {_number(threshold.name, value[key])}" for key in value)
    return _number(threshold.name, value)


def _number(name: str, value: float) -> str:
    """Return the number; bytes with a unit, for all others the name has it."""
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if "bytes" in name.lower() and value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: page()}))
