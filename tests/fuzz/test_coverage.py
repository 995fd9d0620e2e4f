"""`make fuzz` reaches every reader that docs/security.md names, and every module that reads what comes from elsewhere."""

import ast
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS
from tests.test_conventions import ROOT, SOURCES, tree
from vllm_watch.clients import http_answer
from vllm_watch.support import json_text, regular_file

TABLE = "every input, its limits"
NO_READER = {"number of engines and clients"}

ONE_WAY: dict[ModuleType, tuple[str, ...]] = {
    regular_file: ("read", "opened", "check"), http_answer: ("body", "beginning", "lines"), json_text: ("read",),
}  # fmt: skip

BYTES_TO_LOG = "passes bytes on to what `log` fuzzes"
ARGV = "command lines of this host's processes"
OURS = "what a process of ours wrote or answers"
NOT_REACHED = {
    "cli/read.py": BYTES_TO_LOG,
    "cli/advise.py": BYTES_TO_LOG,
    "sources/engine_log.py": BYTES_TO_LOG,
    "sources/log_pieces.py": BYTES_TO_LOG,
    "preflight/command.py": ARGV,
    "sources/host_servers.py": ARGV,
    "restart/hooks/child.py": OURS,
    "restart/hooks/gate.py": OURS,
    "cli/run.py": "asks whether the configuration is empty",
    "cli/helpers/launch_software.py": "names and versions of the installed packages",
}
"""Module → why no target need reach it."""


def rows() -> list[tuple[str, str, str]]:
    """Return (input, test, fuzz targets) of each row of the table."""
    text = (ROOT / "docs/security.md").read_text()
    table = text[text.index(TABLE) :].split("\n\n")[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [(each[0], each[2], each[3]) for each in cells[2:]]


def test_every_row_names_a_test_and_targets_that_exist() -> None:
    """Only what is read nowhere has no target; and each target is named."""
    named = set()
    for what, test, fuzz in rows():
        path, name = test.strip("`").split("::")
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), test
        targets = set(re.findall(r"`(\w+)`", fuzz))
        assert targets <= set(TARGETS), what
        assert bool(targets) != (what in NO_READER), what
        named |= targets
    assert named == set(TARGETS)


def readers() -> set[str]:
    """Return the modules that call one of the one ways."""
    names = {f"{module.__name__.rpartition('.')[2]}.{name}" for module, names in ONE_WAY.items() for name in names}  # fmt: skip
    package = ROOT / "vllm_watch"
    return {
        str(path.relative_to(package))
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in names
    }


def test_every_module_that_reads_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the corpus alone, so that what is changed of it goes there, too."""
    reached: set[str] = set()

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **words: Any) -> Any:
            frame = sys._getframe(1)
            reached.add(frame.f_globals["__name__"].removeprefix("vllm_watch.").replace(".", "/"))
            return original(*args, **words)

        return call

    for module, names in ONE_WAY.items():
        for each in names:
            monkeypatch.setattr(module, each, noting(getattr(module, each)))
    for target in TARGETS.values():
        with target() as take:
            for data in seeds(next(key for key, value in TARGETS.items() if value is target))[:40]:
                take(data)
    missing = {each for each in readers() if each.removesuffix(".py") not in reached}
    assert sorted(missing) == sorted(NOT_REACHED)
