"""docs/faults.md: every fault has a row, every row a test that is there, and the page is in step."""

import re

from tests.faults.matrix import PAGE, PARTS, ROOT, missing, page
from tests.faults.removals import REMOVALS
from tests.faults.removing import PACKAGE, StaleRemovalError, without

ROWS = [row for rows in PARTS.values() for row in rows]


def test_every_test_that_is_named_is_there() -> None:
    assert all(row.tests for row in ROWS)
    assert [each for row in ROWS for each in missing(row)] == []


def test_every_row_has_a_removal() -> None:
    assert set(REMOVALS) == {row.fault for row in ROWS}


def test_every_removal_applies() -> None:
    """Each piece stands in the code once, and what is left is still Python and not what it was."""
    stale = []
    for fault, removal in REMOVALS.items():
        assert removal.cuts
        try:
            for path, text in without(removal.cuts, ROOT / PACKAGE).items():
                compile(text, path, "exec")
                assert text != path.read_text()
        except StaleRemovalError as error:
            stale.append(f"{fault}: {error}")
    assert stale == []


def test_the_page_is_in_step() -> None:
    assert PAGE.read_text() == page()


def test_what_the_page_quotes_is_there() -> None:
    """Each alert that the table names is a rule that exists."""
    rules = "".join(path.read_text() for path in (PAGE.parents[1] / "alerts").glob("*.yaml"))
    for alert in set(re.findall(r"`(Vllm\w+)`", page())):
        assert f"alert: {alert}\n" in rules, alert
