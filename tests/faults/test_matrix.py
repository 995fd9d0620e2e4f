"""docs/faults.md: every fault has a row, every row a test that is there, and the page is in step."""

import re
from dataclasses import astuple
from pathlib import Path

import pytest

from tests.faults.matrix import PAGE, PARTS, ROOT, Row, missing, page
from tests.faults.removals import REMOVALS, Cut
from tests.faults.removing import PACKAGE, StaleRemovalError, chosen, without

ROWS = [row for rows in PARTS.values() for row in rows]


def test_every_test_that_is_named_is_there() -> None:
    """Under that name, in that file, with that case."""
    assert all(row.tests for row in ROWS)
    assert [each for row in ROWS for each in missing(row)] == []


def test_a_test_that_is_not_there_is_found() -> None:
    """The check itself can fail: for a file, a name and a case."""
    names = (
        "faults/no_file.py::test_x",
        "faults/test_matrix.py::test_no_such",
        "faults/test_matrix.py::test_every_row_has_a_removal[no such case]",
    )
    row = Row("", "", "", "", "", "", names)
    assert tuple(missing(row)) == names


def test_every_row_has_a_removal() -> None:
    """None without one, and none for a row that is not there."""
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


TEXTS = {"not there": "c", "there twice": "b"}


@pytest.mark.parametrize("was", TEXTS.values(), ids=TEXTS)
def test_a_removal_that_is_stale_is_found(tmp_path: Path, was: str) -> None:
    """Also in a file from which something was taken just before."""
    (tmp_path / "x.py").write_text("abb")
    with pytest.raises(StaleRemovalError, match="not once"):
        without([Cut("x.py", "a", ""), Cut("x.py", was, "")], tmp_path)
    assert without([Cut("x.py", "a", "c"), Cut("x.py", "c", "d")], tmp_path) == {
        tmp_path / "x.py": "dbb"
    }


def test_rows_are_chosen_by_a_word() -> None:
    """All without one; those of several words; none where nothing has it."""
    assert chosen([]) == ROWS
    assert [row.fault for row in chosen(["sigkill", "EIO"])] == ["disk fails (EIO)", "SIGKILL"]
    assert chosen(["no such fault"]) == []


def test_every_row_says_all_of_it() -> None:
    """No cell is empty, and none would break the table."""
    for row in ROWS:
        *cells, _tests = astuple(row)
        cells.append(REMOVALS[row.fault].piece)
        assert all(cells), row.fault
        assert not any("|" in each or "\n" in each for each in cells), row.fault


def test_the_page_is_in_step() -> None:
    """docs/faults.md is what the table says; make generate renews it."""
    assert PAGE.read_text() == page()


def test_what_the_page_quotes_is_there() -> None:
    """Each alert that the table names is a rule that exists."""
    rules = "".join(path.read_text() for path in (PAGE.parents[1] / "alerts").glob("*.yaml"))
    for alert in set(re.findall(r"`(Vllm\w+)`", page())):
        assert f"alert: {alert}\n" in rules, alert
