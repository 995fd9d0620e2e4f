"""The numbers and sentences that are shown of a target's restarts."""

import time
from dataclasses import replace

import pytest

from tests.restart.station import station
from vllm_watch.restart import plan
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.state.attempt import Attempt

NOW = 1_700_000_000.0
HOUR = 3600.0
SETTINGS = RestartSettings(mode="auto", budget_per_hour=2, budget_per_day=3)


def attempt(hours_ago=0.5, state="helped", **fields):
    t = NOW - hours_ago * HOUR
    return Attempt(
        id=f"{hours_ago}", target="a", group="g", trigger="incident", hook="h", reason="", actor="",
        state=state, began_t=t, **{"called_t": t, **fields},
    )  # fmt: skip


BUDGETS = {
    "nothing was done": ([], 2),
    "one in this hour": ([attempt()], 1),
    "one before this hour": ([attempt(1.5)], 2),
    "the day's is nearer": ([attempt(3), attempt(2), attempt(1.5)], 0),
    "the day's is one": ([attempt(3), attempt(2)], 1),
    "yesterday's count no more": ([attempt(25), attempt(26)], 2),
    "a dry run costs nothing": ([attempt(state="dry_run")], 2),
    "what was cancelled costs nothing": ([attempt(state="cancelled", called_t=None)], 2),
    "what may have happened costs": ([attempt(state="uncertain")], 1),
    "more than there ever was": ([attempt()] * 9, 0),
    "nobody knows": (None, None),
}


@pytest.mark.parametrize(("attempts", "left"), BUDGETS.values(), ids=BUDGETS)
def test_what_is_left(attempts, left):
    assert plan.budget_remaining(SETTINGS, attempts, NOW) == left


async def test_what_is_shown_of_the_past(tmp_path):
    """The last that ended, the payoff that was measured last, a breaker with its reason; of this target alone."""
    now_t = time.time()
    async with station(tmp_path, targets=("a", "b"), budget_per_day=9) as one:
        helped = replace(
            attempt(), id="1", began_t=now_t - 900, called_t=now_t - 890, ended_t=now_t - 800, payoff_ratio=0.7
        )  # fmt: skip
        failed = replace(
            helped, id="2", state="did_not_help", called_t=now_t - 500, began_t=now_t - 500,
            payoff_ratio=None, text="the old process still serves",
        )  # fmt: skip
        for each in (helped, failed):
            await one.journal.write(each)
        one.restarts.targets.mark_changed("a")
        one.restarts.targets.mark_changed("b")
        shown = await one.shown(lambda plan: plan["last"] and plan["last"]["id"] == "2")
        assert (shown["last"]["id"], shown["last"]["text"]) == ("2", "the old process still serves")
        assert (shown["payoff_ratio"], shown["budget_remaining"]) == (0.7, 0)
        assert "did not help (the old process still serves)" in shown["breaker"]
        other = await one.shown(lambda plan: plan["breaker"], "b")  # the group's
        assert (other["last"], other["payoff_ratio"], other["budget_remaining"]) == (None, None, 0)
