"""How long tests took when they were measured, and which of them `make check` and `make test` leave out for that.

`make durations` runs all tests and writes durations.json anew; what is not in it yet is short. Of a function with
many cases the first ones are tried all the same, as many as its budget allows: nothing is left out for the length of its table.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILE = TESTS / "durations.json"

CORE = (
    "detectors", "incidents", "state", "restart/test_guard.py", "restart/test_attempts.py", "restart/test_dispatcher.py",
    "restart/test_verify.py", "restart/test_restart.py", "sources/test_exposition.py", "test_daemon.py",
)  # fmt: skip
"""What decides and what must not be lost: of this more is tried before a commit."""

FUNCTION_SECONDS, CORE_FUNCTION_SECONDS = 0.3, 1.5
"""So much of each test function `make check` spends."""

TEST_SECONDS = 2.0
"""... and `make test`. What is beyond it, `make test-longest` tries."""

SETUP_SECONDS = 6.0
"""... unless what all tests of a file share takes longer than this."""

FILE_SECONDS = 20.0
"""A file whose tests took longer is begun early: at the end the others fill the gaps."""

SETUP = "(setup)"
"""In the place of a function: the longest setup of a test in the file, which nearly always is that of fixtures that all share."""

_KEPT_SECONDS_MIN = 0.2  # less is noise


class Durations:
    """What was measured, in seconds, by the paths of files below tests/ and the names of functions."""

    def __init__(self, seconds: dict[str, dict[str, float]]) -> None:
        self._seconds = seconds

    @classmethod
    def read(cls) -> "Durations":
        return cls(json.loads(FILE.read_text()))

    def of_file(self, path: Path) -> float:
        return sum(self._seconds.get(_place(path), {}).values())

    def part(self, items: Iterable[pytest.Item], number: int, of: int) -> list[pytest.Item]:
        """Return the items of the files in one of several parts whose slow tests take about equally long."""
        items = list(items)
        slow_s = {
            path: sum(s for s in self._seconds.get(_place(path), {}).values() if s > TEST_SECONDS)
            for path in {item.path for item in items}
        }
        parts = [0.0] * of
        chosen = set()
        for file in sorted(slow_s, key=lambda file: (-slow_s[file], file)):
            shortest = parts.index(min(parts))
            parts[shortest] += max(slow_s[file], _KEPT_SECONDS_MIN)
            if shortest == number - 1:
                chosen.add(file)
        return [item for item in items if item.path in chosen]

    def long(self, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
        """Those that `make check` leaves out."""
        return self._beyond(items, FUNCTION_SECONDS, CORE_FUNCTION_SECONDS)

    def longest(self, items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
        """Those that `make test` leaves out."""
        return self._beyond(items, TEST_SECONDS, TEST_SECONDS, SETUP_SECONDS)

    def _beyond(
        self,
        items: Iterable[pytest.Item],
        budget_s: float,
        core_budget_s: float,
        setup_s: float = 0.0,
    ) -> Iterator[pytest.Item]:
        items = list(items)
        cases = Counter(map(_function, items))
        begun: Counter[tuple[str, str]] = Counter()
        for item in items:
            place, name = key = _function(item)
            of_file = self._seconds.get(place, {})
            begun[key] += 1
            spent_s = begun[key] * of_file.get(name, 0.0) / cases[key]
            most_s = core_budget_s if place.startswith(CORE) else budget_s
            # Whatever is tried of a file first pays for what all of it share.
            if spent_s > most_s or of_file.get(SETUP, 0.0) > max(most_s, setup_s):
                yield item


class Measure:
    """A plugin that writes down how long each function took: of the files that were run, and of no other."""

    def __init__(self) -> None:
        self._seconds: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        place, _, case = report.nodeid.removeprefix("tests/").partition("::")
        seconds = self._seconds.setdefault(place, Counter())
        if report.when == "setup":
            seconds[SETUP] = max(seconds[SETUP], report.duration)  # type: ignore[assignment]
        else:
            seconds[case.partition("[")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        known = json.loads(FILE.read_text()) | self._seconds
        kept = {
            place: {
                name: round(s, 1) for name, s in sorted(tests.items()) if s >= _KEPT_SECONDS_MIN
            }
            for place, tests in sorted(known.items())
            if (TESTS / place).is_file()
        }
        FILE.write_text(
            json.dumps({place: tests for place, tests in kept.items() if tests}, indent=0) + "\n"
        )


def _function(item: pytest.Item) -> tuple[str, str]:
    return _place(item.path), item.nodeid.partition("::")[2].partition("[")[0]


@cache
def _place(path: Path) -> str:
    return str(path.relative_to(TESTS))
