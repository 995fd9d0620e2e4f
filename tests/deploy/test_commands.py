"""Every command that README, docs and --help show runs as it is printed, beside real peers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.shown import Shown, shown

RUN = [each for each in shown() if each.not_run is None]
SECONDS_MAX = 600
WRONG = re.compile(r"Traceback|^usage: |there is no argument|there is no command|command not found", re.MULTILINE)  # fmt: skip


@pytest.fixture(scope="module")
def ran(clone: Path) -> dict[str, tuple[int, str]]:
    """Exit status and output of each."""
    namespaces = ["--mount", "--net"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    done = subprocess.run(
        ["unshare", *namespaces, sys.executable, "-m", "tests.deploy.sandbox", clone.parent], cwd=clone,
        env={k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))},
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, tuple[int, str]] = json.loads(done.stdout)
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
