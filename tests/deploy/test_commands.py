"""Every command that README, docs and --help show runs as it is printed, beside real peers."""

import re
from pathlib import Path

import pytest

from tests.deploy.alone import alone
from tests.deploy.shown import Shown, shown

RUN = [each for each in shown() if each.not_run is None]
WRONG = re.compile(r"Traceback|^usage: |there is no argument|there is no command|command not found", re.MULTILINE)  # fmt: skip


@pytest.fixture(scope="module")
def ran(clone: Path) -> dict[str, tuple[int, str]]:
    """Exit status and output of each."""
    said: dict[str, tuple[int, str]] = alone(clone, "tests.deploy.sandbox", clone.parent)
    return said


@pytest.mark.parametrize("each", RUN, ids=str)
def test_it_runs_as_printed(ran: dict[str, tuple[int, str]], each: Shown) -> None:
    """It ends as it should, and shows what it is for."""
    status, out = ran[str(each)]
    assert status in each.statuses, out
    assert re.search(each.shows, out), out
    assert not WRONG.search(out)


@pytest.mark.parametrize("command", ["approve", "restart"])
def test_one_of_those_that_may_be_refused_is_done(
    ran: dict[str, tuple[int, str]], command: str
) -> None:
    """A request that its incident, or an engine, has only once."""
    assert 0 in [ran[str(each)][0] for each in RUN if f"vllm-watch {command} " in each.text]
