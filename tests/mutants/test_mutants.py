"""The changes that `make mutants` plants: what they are, and that its lists follow the code."""

from pathlib import Path

import pytest

from tests.mutants.modules import EQUIVALENT, TESTS
from tests.mutants.mutate import mutants
from tests.mutants.run import ROOT, all_of

CHANGES = {  # a line → what it becomes
    "x = a.y < b": ["x = (a.y >= b)"],
    "x = len(y) < b": ["x = (len(y) <= b)", "x = (len(y) >= b)"],
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


def test_lists_follow_the_code() -> None:
    """Every module and every test of it is there, some changes compile, and every equivalent one is still made."""
    made = set()
    for module, tests in TESTS.items():
        assert all((ROOT / "tests" / test).is_file() for test in tests)
        source = (ROOT / "vllm_watch" / module).read_bytes()
        changes = mutants(source)
        for each in changes[::40]:
            compile(each.planted(source), module, "exec")
        made |= {(module, each.was, each.now) for each in changes}
    known = {(each.module, each.was, each.now) for each in EQUIVALENT}
    assert known - made == set()
    assert all(each.reason for each in EQUIVALENT)
    left = {
        (each.module, each.mutant.was, each.mutant.now) for each in all_of(Path(ROOT), list(TESTS))
    }
    assert left == made - known
