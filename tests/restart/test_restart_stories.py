"""What must never happen, told through the dispatcher with real processes, locks and journals."""

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest

from tests.restart.dispatching import Story, file_lock
from tests.restart.world import REQUEST, TARGET, Server
from tests.state.test_damaged_folders import cases, damaged, folder
from vllm_watch.restart import guard

pytestmark = pytest.mark.usefixtures("quick")

EAGER = {"cooldown_seconds": 0.0, "budget_per_hour": 100, "budget_per_day": 100}
"""Nothing but the breaker holds a restart back."""


SATURATED: dict[str, dict[str, Any] | None] = {
    "no incident": None,
    "an overload, which no restart cures": {"restart_advised": False},
    "a stall that is over": {"resolved_t": 2.0},
}


@pytest.mark.parametrize("incident", SATURATED.values(), ids=SATURATED)
async def test_healthy_saturated_engine_is_never_touched(
    server: Server, incident: dict[str, Any] | None
) -> None:
    """With 500 requests in hand and everything allowed, requests for it come to nothing."""
    server.start()
    (server.folder / "requests").write_text("x\n" * 500)
    pid = server.pid
    async with Story(server, settings=EAGER) as story:
        story.world.no_incidents()
        if incident is not None:
            story.incident(**incident)
        for _ in range(20):
            story.dispatcher.submit(REQUEST)
            decision, attempt = await story.dispatcher.decide_now(REQUEST)
            assert (decision.verdict, decision.check, attempt) == (guard.REFUSE, "trigger", None)
        assert await story.states() == []
        assert (server.pid, server.signals().state) == (pid, "serving")
    assert server.lines("called") == []


async def test_restart_that_cannot_help_opens_the_breaker_after_one(server: Server) -> None:
    """The new process stalls as the old one did: no second one until a person says so, and then one more."""
    async with Story(server, script="stalls again", settings=EAGER) as story:
        story.dispatcher.submit(REQUEST)
        assert (await story.fulfilled()).state == "did_not_help"
        for _ in range(10):
            decision, _ = await story.dispatcher.decide_now(REQUEST)
            assert decision.check == "breaker"
            assert "has the fault again: engine_stalled" in decision.text
        assert len(server.lines("ended")) == 1

        await story.resumed()
        _, attempt = await story.dispatcher.decide_now(REQUEST)
        assert attempt is not None
        await story.over()
        decision, _ = await story.dispatcher.decide_now(REQUEST)
        assert (decision.check, len(server.lines("ended"))) == ("breaker", 2)


async def test_two_watchers_of_one_target_restart_it_once(server: Server) -> None:
    """Each has a journal of its own and sees the same; only the holder of the lock acts."""

    lock = file_lock(server)
    async with (
        Story(server, lock=lock, holder="a", folder="a") as a,
        Story(server, lock=lock, holder="b", folder="b") as b,
    ):
        for story in (a, b):
            story.dispatcher.submit(REQUEST)
        both = (a, b)
        async with asyncio.timeout(20):
            while not any(each.dispatcher.attempts.outcomes for each in both):
                await asyncio.sleep(0.01)
        first, second = both if a.dispatcher.attempts.outcomes else (b, a)
        assert second.dispatcher.blocked[("chat-0", "lock")] == 1
        second.incident(resolved_t=2.0)  # it sees what the other has brought about
        await second.until(lambda: not second.dispatcher.waiting("chat-0"))
        assert await first.states() == ["helped"]
        async with asyncio.timeout(20):  # it may have begun one in between, which it then gives up
            while any(state != "cancelled" for state in await second.states()):
                await asyncio.sleep(0.01)
    assert len(server.lines("ended")) == len(server.lines("called")) == 1


async def test_two_of_a_group_do_not_pass_at_once(server: Server) -> None:
    """The budget is the group's: while one drains, what it will spend is spent."""
    async with Story(server) as story:
        mate = replace(TARGET, name="chat-1", url="http://127.0.0.1:8")
        story.world.watch(mate, story.world.settings)
        story.world.incident("i2", target="chat-1")
        for target, incident in (("chat-0", "i1"), ("chat-1", "i2")):
            story.dispatcher.submit(replace(REQUEST, target=target, incident_id=incident))
        await story.until(lambda: story.dispatcher.attempts.outcomes)
        await story.until(lambda: story.dispatcher.blocked[("chat-1", "cooldown")])
        assert await story.states() == ["helped"]
    assert len(server.lines("ended")) == 1


async def test_journal_that_was_damaged_while_we_ran_refuses(server: Server) -> None:
    """What was spent is not known any more: nothing by itself until a person resumes."""
    async with Story(server, settings=EAGER) as story:
        story.dispatcher.submit(REQUEST)
        await story.fulfilled()
        server.hang()
        path = server.folder / "state" / "vllm-watch.sqlite"
        path.rename(path.with_name(f"{path.name}.damaged-1"))
        decision, _ = await story.dispatcher.decide_now(REQUEST)
        assert (decision.check, "or resume" in decision.text) == ("journal", True)
        await story.resumed()
        decision, _ = await story.dispatcher.decide_now(REQUEST)
        assert decision.verdict == guard.ACT
        await story.over()


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
