"""The table of unsafe control actions: each action has each kind, each row a test that is there, and the page is in step."""

from itertools import product

from tests.faults.matrix import Row, missing
from tests.restart.hazards import HAZARDS, KINDS, PAGE, written

ACTIONS = ("restart", "drain", "pause", "reclaim", "page")


def test_each_action_has_each_kind() -> None:
    """Once, in order."""
    assert [(each.action, each.kind) for each in HAZARDS] == [*product(ACTIONS, KINDS)]


def test_every_test_that_is_named_is_there() -> None:
    """Under that name, in that file."""
    assert all(each.tests for each in HAZARDS)
    rows = (Row("", "", "", "", "", "", each.tests) for each in HAZARDS)
    assert [each for row in rows for each in missing(row)] == []


def test_the_page_is_in_step() -> None:
    """make generate renews it; no cell breaks the table."""
    assert PAGE.read_text() == written(PAGE.read_text())
    assert not any("|" in text for each in HAZARDS for text in (each.unsafe, each.prevented))
