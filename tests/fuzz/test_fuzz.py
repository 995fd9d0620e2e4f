"""What once broke a reader breaks it no more, and for some seconds nothing else does.

`make fuzz` goes on for longer, and follows coverage where Atheris is installed (docs/development.md).
"""

import ast
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.fuzz import run
from tests.fuzz.seeds import CORPUS, corpus, seeds
from tests.fuzz.targets import TARGETS
from tests.test_conventions import ROOT, SOURCES, tree
from vllm_watch.clients import http_answer
from vllm_watch.support import json_text, regular_file

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_taken(name: str) -> None:
    """Every file of it, and every seed: read, or refused as documented."""
    with TARGETS[name]() as take:
        for data in seeds(name):
            with run.bounded():
                take(data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_changed_at_random_is_taken(name: str) -> None:
    """The same inputs in each run, as many of them as there is time for."""
    with TARGETS[name]() as take:
        done = run.fuzz(take, seeds(name), SECONDS)
    assert done.found is None, (done.fault, done.found)
    assert done.inputs > 0


def test_a_fault_is_found_and_told() -> None:
    """A reader that breaks over what is rare is broken within some inputs, and which one is said."""

    def take(data: bytes) -> None:
        data.decode()

    done = run.fuzz(take, [b"text\n", b"more text\n"], 60.0)
    assert done.found is not None
    assert isinstance(done.fault, UnicodeDecodeError)
    with pytest.raises(UnicodeDecodeError):
        take(done.found)


def test_what_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input over which a reader hangs is a finding like any other."""
    monkeypatch.setattr(run, "INPUT_SECONDS_MAX", 1)

    def take(_: bytes) -> None:
        while True:
            time.sleep(0.01)

    done = run.fuzz(take, [b"text"], 60.0)
    assert isinstance(done.fault, run.FaultError)
    assert "longer than" in str(done.fault)


def test_every_target_has_a_corpus() -> None:
    """None is there that nothing plays, and none is so large that it does not belong here."""
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert all(corpus(name) for name in TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1 << 20


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
    "preflight/check_flag_values.py": ARGV,
    "preflight/command.py": ARGV,
    "sources/host_servers.py": ARGV,
    "restart/hooks/child.py": OURS,
    "restart/hooks/gate.py": OURS,
    "cli/run.py": "asks whether the configuration is empty",
    "cli/helpers/launch_software.py": "names and versions of the installed packages",
}
"""Module → why no target need reach it."""


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
    for name, target in TARGETS.items():
        with target() as take:
            for data in seeds(name)[:40]:
                take(data)
    missing = {each for each in readers() if each.removesuffix(".py") not in reached}
    assert sorted(missing) == sorted(NOT_REACHED)
