"""What once broke a reader breaks it no more, and for some seconds nothing else does.

`make fuzz` goes on for longer, and follows coverage where Atheris is installed (docs/development.md).
"""

import os
import time
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.seeds import CORPUS, corpus, seeds
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))


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
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(map(_bytes, files)) < 1 << 20


def _bytes(path: Path) -> int:
    return path.stat().st_size
