"""What holds for all tests."""

import gc
import importlib.util
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.durations import FILE_SECONDS, Durations, Measure
from tests.examples import TEST
from tests.warm_starts import WarmStarts

# `make supply` and `make docs` have environments of their own, without what the daemon is made of.
DAEMON = importlib.util.find_spec("aiohttp") is not None

settings.load_profile(TEST)  # make hunt takes another, with --hypothesis-profile

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job: what the tests start would inherit it, and never be met by Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that is tried in this process sets a level of its own, which would hide what the next test logs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    if structlog.is_configured():
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _what_is_closed_has_time_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is. That closing is bounded has tests of its own."""
    if DAEMON:
        monkeypatch.setattr("vllm_watch.state.worker.CLOSE_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def _leaks_are_told_at_home() -> Iterator[None]:
    """What a test did not close fails that test, each time: not another one, when the collector happens to run."""
    yield
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _what_stays_is_not_looked_through_again() -> Iterator[None]:
    """What a file's tests have loaded stays, too."""
    yield
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """What is loaded stays: to look through it after each test would cost a minute."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", action="store_true", help="write tests/durations.json anew")
    parser.addoption(
        "--part", default="1/1", help="run only part I of N: I/N (files that take equally long)"
    )


@pytest.fixture(autouse=True, scope="session")
def _starts_are_warm() -> Iterator[None]:
    starts = WarmStarts()
    starts.install()
    yield
    starts.remove()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measure())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations = Durations.read()
    number, of = map(int, config.getoption("--part").split("/"))
    chosen = durations.part(items, number, of)
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen
    for item in durations.long(items):
        item.add_marker(pytest.mark.long)
    for item in durations.longest(items):
        item.add_marker(pytest.mark.longest)
    items[:] = _spread(items, durations)


LONG_SHARE = 0.8  # of the files, over which those that take long are spread evenly: at the end the others fill the gaps


def _spread(items: list[pytest.Item], durations: Durations) -> list[pytest.Item]:
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    long = [file for file in files if durations.of_file(file) > FILE_SECONDS]
    order = [file for file in files if file not in long]
    between = LONG_SHARE * len(order) / max(1, len(long))
    for number, file in reversed(list(enumerate(long))):
        order.insert(int(number * between), file)
    return [item for file in order for item in files[file]]
