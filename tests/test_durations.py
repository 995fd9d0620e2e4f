"""What `make check` and `make test` leave out: the cases beyond what is spent on their function."""

from types import SimpleNamespace

from tests.durations import (
    CORE,
    CORE_FUNCTION_SECONDS,
    FUNCTION_SECONDS,
    TEST_SECONDS,
    TESTS,
    Durations,
)


def item(place, case):
    return SimpleNamespace(path=TESTS / place, nodeid=f"tests/{place}::{case}")


def left_out(seconds, place, *cases, of="long"):
    durations = Durations({place: {"test_a": seconds}})
    return [
        each.nodeid.partition("::")[2]
        for each in getattr(durations, of)([item(place, case) for case in cases])
    ]


def test_what_is_quick_or_new_is_tried():
    """A test that nobody has measured yet is one that somebody just wrote."""
    assert left_out(FUNCTION_SECONDS, "export/test_x.py", "test_a") == []
    assert left_out(99.0, "export/test_x.py", "test_b") == []


def test_of_a_long_table_the_first_cases_are_tried():
    """As many as the budget of their function allows; of the core more."""
    cases = [f"test_a[{number}]" for number in range(10)]
    assert left_out(10 * FUNCTION_SECONDS / 3, "export/test_x.py", *cases) == cases[3:]
    assert left_out(10 * CORE_FUNCTION_SECONDS / 3, "detectors/test_x.py", *cases) == cases[3:]
    assert left_out(FUNCTION_SECONDS * 1.01, "export/test_x.py", "test_a") == ["test_a"]


def test_make_test_spends_the_same_on_each_function():
    cases = [f"test_a[{number}]" for number in range(10)]
    for place in ("export/test_x.py", "detectors/test_x.py"):
        assert left_out(10 * TEST_SECONDS / 3, place, *cases, of="longest") == cases[3:]
        assert left_out(TEST_SECONDS, place, *cases, of="longest") == []


def test_the_core_is_there():
    """A file that was moved away would be left out without a word."""
    assert [place for place in CORE if not (TESTS / place).exists()] == []
