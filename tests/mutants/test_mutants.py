"""The changes that `make mutants` plants: what they are, and that its lists follow the code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.modules import EQUIVALENT, MODULES
from tests.mutants.mutate import mutants
from tests.mutants.reach import FOLDER, Reach
from tests.mutants.run import ROOT, all_of, first_to_fail

CHANGES = {  # a line → what it becomes
    "x = a.y < b": ["x = (a.y >= b)"],
    "x = len(y) < b": ["x = (len(y) <= b)", "x = (len(y) >= b)"],
    "x = len(y) < b * c": ["x = (len(y) >= b * c)", "x = len(y) < (b / c)"],
    "x = a is None": ["x = (a is not None)"],
    "x = not a": ["x = (a)"],
    "x = a and b": ["x = (a or b)", "x = (a)", "x = (b)"],
    "x = 2 + a": ["x = (2 - a)", "x = 3 + a"],
    "x = max(a)": ["x = min(a)"],
    "x = True": ["x = False"],
    "x = a(2, 8.0, 0.0)": ["x = a(3, 8.0, 0.0)", "x = a(2, 16.0, 0.0)"],
    "self.x = a": ["pass"],
    "x.append(a)": ["pass"],
    "return x": ["return None"],
    "while a: continue": ["while (not (a)): continue", "while a: break"],
    "raise ValueError(a)": ["pass"],
    "x: int = a": [],
    "x = f'{a + 1}'": [],
    "_log.info('x', a=1)": [],
    "assert a == 1": [],
    "x = zip(a, strict=True)": [],
}


@pytest.mark.parametrize(("line", "expected"), CHANGES.items(), ids=CHANGES)
def test_changes(line: str, expected: list[str]) -> None:
    """Each is made once, in place; texts, annotations and logs are left alone."""
    source = f"async def f():\n    {line}\n".encode()
    made = [each.planted(source).decode().splitlines()[1].strip() for each in mutants(source)]
    assert sorted(made) == sorted(expected)


def test_threshold_is_doubled() -> None:
    """One more of sixty seconds would be no change that anybody means."""
    source = b"X = 60.0\nSTATE_VERSION = 2\n"
    assert [each.planted(source) for each in mutants(source)] == [b"X = 120.0\nSTATE_VERSION = 2\n"]


def test_a_change_is_shown_to_the_tests_that_reach_it() -> None:
    """The nearest first, then the quickest, as many as the budget allows; a line that an import runs: those of its module."""
    module, near, aside, far = "restart/guard.py", "tests/restart/test_guard.py::a", "tests/restart/test_x.py::b", "tests/test_y.py::c"  # fmt: skip
    reach = Reach(
        {(module, 7): {far, aside, near, "tests/restart/test_red.py::d"}, (module, 9): {far}},
        {near: 3.0, aside: 2.0, far: 0.5},  # of the red one nothing is known
    )
    assert reach.of(module, [7], 10.0) == [near, aside, far]
    assert reach.of(module, [7], 5.0) == [near, aside]
    assert reach.of(module, [7], 1.0) == [near]
    assert reach.of(module, range(8, 11), 1.0) == [far]
    assert reach.of(module, [1], 10.0) == [near, aside, far]
    assert reach.of("reclaim/plan.py", [1], 10.0) == []


def test_what_runs_is_written_down(tmp_path: Path) -> None:
    """By test; a test that fails with nothing changed is in none."""
    (tmp_path / "vllm_watch/restart").mkdir(parents=True)
    for folder in ("vllm_watch", "vllm_watch/restart"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "vllm_watch/restart/guard.py").write_text(
        "def f(x):\n    if x:\n        return 1\n    return 2\n"
    )
    (tmp_path / "test_it.py").write_text(
        "from vllm_watch.restart.guard import f\n"
        "def test_one():\n    assert f(1) == 1\n"
        "def test_two():\n    assert f(0) == 2\n"
        "def test_red():\n    assert f(0) == 1\n"
    )
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.reach", "test_it.py"],
        cwd=tmp_path, env=os.environ | {FOLDER: str(tmp_path), "PYTHONPATH": f"{tmp_path}:{ROOT}"}, check=False, timeout=600,
    )  # fmt: skip
    reach = Reach.read(tmp_path)
    assert reach.of("restart/guard.py", [3], 9.0) == ["test_it.py::test_one"]
    assert reach.of("restart/guard.py", [4], 9.0) == ["test_it.py::test_two"]
    assert len(reach.of("restart/guard.py", [2], 9.0)) == 2


def test_what_fails_before_a_test_begins_notices_a_change(tmp_path: Path) -> None:
    """A fixture, or the cases of a file, which the changed code makes."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef store():\n    raise RuntimeError\n"
        "def test_fine(): pass\n"
        "def test_stored(store): pass\n"
        "def test_red():\n    assert False\n"
    )
    fine, stored, red = (f"test_it.py::test_{each}" for each in ("fine", "stored", "red"))
    assert first_to_fail(tmp_path, [fine, stored, red], 60) == stored
    assert first_to_fail(tmp_path, [fine, red], 60) == red
    assert first_to_fail(tmp_path, [fine], 60) is None
    (tmp_path / "test_cases.py").write_text("CASES = 1 / 0\ndef test_case(): pass\n")
    assert first_to_fail(tmp_path, ["test_cases.py::test_case", fine], 60) == "test_cases.py"


def test_lists_follow_the_code() -> None:
    """Every module is there, some changes compile, and every equivalent one is still made."""
    made = set()
    for module in MODULES:
        source = (ROOT / "vllm_watch" / module).read_bytes()
        changes = mutants(source)
        for each in changes[::40]:
            compile(each.planted(source), module, "exec")
        made |= {(module, each.was, each.now) for each in changes}
    known = {(each.module, each.was, each.now) for each in EQUIVALENT}
    assert known - made == set()
    assert all(each.reason for each in EQUIVALENT)
    left = {(each.module, each.mutant.was, each.mutant.now) for each in all_of(Path(ROOT), MODULES)}
    assert left == made - known
