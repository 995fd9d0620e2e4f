"""A watcher that finds its state folder damaged restarts nothing that the lost history may have spent."""

import os

import pytest

from tests.restart.dispatching import Story
from tests.state.test_damaged_folders import cases, damaged, folder

pytestmark = pytest.mark.usefixtures("quick")

__all__ = ["folder"]  # the fixture

EVERY = int(os.environ.get("VLLM_WATCH_TEST_EVERY", "10"))  # 1: all 200 folders


async def test_no_damage_makes_a_second_call(folder, server):
    """Sixteen attempts did not help, of an incident that is still open: the next watcher makes none."""
    stood_against = {}
    for number, case in enumerate(cases()[::EVERY]):
        damaged(folder, server.folder / str(number), *case)
        async with Story(server, folder=str(number)) as story:
            decision = await story.decided()
            assert decision.check is not None, case
            stood_against[decision.check] = stood_against.get(decision.check, 0) + 1
    assert server.lines("called") == []
    assert {"journal", "cooldown"} <= stood_against.keys(), stood_against  # lost and known
