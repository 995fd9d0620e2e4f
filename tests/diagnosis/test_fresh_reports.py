"""Answers to fresh public reports: class, root line, and no harmful advice."""

import re

import pytest

from tests.diagnosis.fresh_reports import REPORTS as FIRST
from tests.diagnosis.more_reports import MORE_REPORTS
from tests.diagnosis.new_reports import NEW_REPORTS
from tests.diagnosis.whole_log import diagnose

REPORTS = FIRST | MORE_REPORTS | NEW_REPORTS


@pytest.mark.parametrize(("log", "classes", "root", "never"), REPORTS.values(), ids=REPORTS)
def test_the_answer_is_right_and_harmless(
    log: str, classes: set[str], root: str, never: str
) -> None:
    """Class, root line, and no advice that would make it worse."""
    found = diagnose(log.encode())
    assert found.failure in classes
    assert re.search(root, found.root_cause_line or "")
    advice = "\n".join(f"{each.what} {each.command or ''}" for each in found.fixes)
    assert not (never and re.search(never, advice)), advice


@pytest.mark.parametrize(
    "log", [each[0] for name, each in REPORTS.items() if name.endswith(" line")]
)
def test_no_start_must_fail_that_no_line_shows(log: str) -> None:
    """A pasted out-of-memory error may be of an engine that served for hours."""
    found = diagnose(log.encode())
    assert "memory" not in found.failure or not found.deterministic_start_failure


def test_the_tail_of_a_log_says_nothing_of_a_start() -> None:
    """Only lines of silent workers: the engine may have served for days."""
    found = diagnose(REPORTS["vllm#51986: mnnvl tail"][0].encode())
    assert "did not finish" not in found.explanation


def test_a_config_that_is_none_is_no_refused_flag() -> None:
    """The message names no flag."""
    found = diagnose(REPORTS["vllm-omni#2170: omni no arch"][0].encode())
    assert "lists no architecture" in found.sentence
