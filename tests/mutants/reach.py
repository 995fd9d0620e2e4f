"""Which tests run which lines of the modules that are mutated, and how long each takes: what is asked of a change.

`pytest -p tests.mutants.reach` writes it down, each of its processes into a file of its own in $MUTANTS_REACH;
`Reach.read` joins them. A line that only an import runs (a threshold) is reached by whoever reaches its module.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import coverage
import pytest

from tests.mutants.modules import MODULES

FOLDER = "MUTANTS_REACH"
PACKAGE = "vllm_watch"
_SECONDS, _LINES = ".json", ".coverage"


class Recorder:
    """A plugin that notes, test by test, the lines that run, and the seconds of those that pass."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / str(os.getpid())
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=f"{self._file}{_LINES}", config_file=False, messages=False,
            include=[str(Path(PACKAGE, module).absolute()) for module in MODULES],
        )  # fmt: skip
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        began_s = time.monotonic()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.monotonic() - began_s
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":  # with nothing changed: it would show nothing
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        Path(f"{self._file}{_SECONDS}").write_text(
            json.dumps({name: s for name, s in self._seconds.items() if name not in self._failed})
        )


def pytest_configure(config: pytest.Config) -> None:
    """Record, if asked to: the process that only hands tests out has none of its own."""
    if FOLDER in os.environ:
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER])))


class Reach:
    """The tests that run each line, by the module's path in the package; and the seconds of each."""

    def __init__(self, tests: dict[tuple[str, int], set[str]], seconds: dict[str, float]) -> None:
        self._tests, self._seconds = tests, seconds
        self._of_module: defaultdict[str, set[str]] = defaultdict(set)
        for (module, _), names in tests.items():
            self._of_module[module] |= names

    @classmethod
    def read(cls, folder: Path) -> "Reach":
        tests: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for path in folder.glob(f"*{_LINES}"):
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                module = file.rpartition(f"/{PACKAGE}/")[2]
                for line, names in data.contexts_by_lineno(file).items():
                    tests[module, line] |= {each for each in names if each}
        seconds: dict[str, float] = {}
        for path in folder.glob(f"*{_SECONDS}"):
            seconds |= json.loads(path.read_text())
        return cls(tests, seconds)

    def of(self, module: str, lines: Iterable[int], budget_s: float) -> list[str]:
        """The tests to try for a change of these lines, as many as take the budget together: the nearest first."""
        reaching = set[str]().union(*(self._tests.get((module, line), ()) for line in lines))
        known = (reaching or self._of_module[module]) & self._seconds.keys()
        chosen, spent_s = [], 0.0
        for name in sorted(known, key=lambda each: (_far(module, each), self._seconds[each], each)):
            spent_s += self._seconds[name]
            if chosen and spent_s > budget_s:
                break
            chosen.append(name)
        return chosen

    def __bool__(self) -> bool:
        return bool(self._seconds and self._tests)

    def __str__(self) -> str:
        return f"{len(set().union(*self._of_module.values()))} of {len(self._seconds)} tests reach them"

    def seconds(self, tests: Iterable[str]) -> float:
        return sum(self._seconds.get(each, 0.0) for each in tests)


def _far(module: str, test: str) -> int:
    """0: of the module by its name; 1: of its folder; 2: of another."""
    path = Path(module)
    file = Path(test.partition("::")[0])
    if file.stem.startswith(f"test_{path.stem}"):
        return 0
    return 1 if file.parent == Path("tests", path.parent) else 2
