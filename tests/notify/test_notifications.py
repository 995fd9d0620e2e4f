"""The wiring in one event loop: the board's events reach the streams and the notifiers, and none comes twice."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.notify.telling import receiver
from tests.notify.test_board_alerts import ATTEMPT, board, ended, event
from tests.told import made
from vllm_watch.board.restarts import RestartCounts, RestartPlan
from vllm_watch.config import Config
from vllm_watch.notify import notifications as notifications_module
from vllm_watch.notify.switch import NotifySwitch
from vllm_watch.watch.memory import Memory


@pytest.fixture(autouse=True)
def _never_by_time(monkeypatch):
    """What is told is told because something happened."""
    monkeypatch.setattr(notifications_module, "LOOK_SECONDS", 600.0)


@asynccontextmanager
async def wired(one, folder, it):
    config = Config.model_validate({"notifications": {
        "webhook": [{"name": "oncall", "url": it.url, "group_seconds": 0}],
        "jsonl": [{"name": "events", "path": str(folder / "ev")}],
    }})  # fmt: skip
    switch = NotifySwitch(config, one, lambda _: False, None)
    await switch.start()
    try:
        yield switch
    finally:
        await switch.stop()


def streamed(folder):
    return [json.loads(line) for line in (folder / "ev").read_text().splitlines()]


async def test_what_is_shown_is_told_at_once(tmp_path):
    """Opened, and ended with its target, in the form in which replay says it."""
    one = board()
    async with receiver() as it:
        async with wired(one, tmp_path, it) as switch:
            events = made(event(t=5.0))
            one.tell(events)
            switch.saw("a", events)
            await it.until(1)
            ended = made(
                event(event="resolved", t=9.0, resolution="target_gone", restart_advised=False)
            )
            one.tell(ended)
            one.remove_target("a")
            switch.saw("a", ended)
            await it.until(2)
        assert [each["phase"] for each in it.got] == ["opened", "resolved"]
        assert it.got[1]["items"][0]["resolution"] == "target_gone"
    first, last = streamed(tmp_path)
    assert first == first | event(t=5.0)
    assert (last["event"], last["resolution"], last["restart_advised"]) == (
        "resolved",
        "target_gone",
        False,
    )
    assert first.keys() | {"resolution"} == last.keys()


async def test_what_was_open_before_is_told_and_not_streamed(tmp_path):
    """An earlier run has written it; whether it was told is in the ledger, which is new here."""
    one = board()
    async with receiver() as it:
        one.restore_incidents("a", made(event(t=5.0)), {})
        async with wired(one, tmp_path, it):
            await it.until(1)
    assert not (tmp_path / "ev").exists()


async def test_an_incident_of_a_target_that_does_not_come_back_is_streamed(tmp_path):
    """Its end is the only news of it that this run has."""
    one = board()
    memory = Memory(None, one)
    [opened] = made(event("i9", "gone", t=1.0))
    async with receiver() as it, wired(one, tmp_path, it) as switch:
        switch.saw("gone", memory._end([opened.incident], "target_gone"))
    [told] = streamed(tmp_path)
    assert (told["event"], told["id"], told["resolution"]) == ("resolved", "i9", "target_gone")


async def test_steps_of_restarts_are_streamed_once(tmp_path):
    """Those of this run; what an earlier one has done stands in its lines."""
    one = board()
    old = RestartPlan(mode="auto", hook="h", last=ended("helped"))
    one.show_restart("a", old, RestartCounts())
    async with receiver() as it, wired(one, tmp_path, it) as switch:
        notifications = switch._notifications
        await asyncio.sleep(0.3)
        now = notifications._began_t + 1
        for _ in range(2):
            attempt = replace(ATTEMPT, id="at2", called_timestamp_seconds=now)
            plan = RestartPlan(mode="auto", hook="h", under_way=attempt, last=ended("helped"))
            one.show_restart("a", plan, RestartCounts())
            notifications._woken.set()
            await asyncio.sleep(0.3)
    assert [(each["event"], each["step"]) for each in streamed(tmp_path)] == [("restart", "begun")]
    assert set(streamed(tmp_path)[0]) == {
        "t", "event", "id", "target", "step", "severity", "summary", "incident_id",
    }  # fmt: skip


async def test_nothing_configured_nothing_started(tmp_path):
    """Until a reload configures one."""
    one = board()
    switch = NotifySwitch(Config(), one, lambda _: False, None)
    await switch.start()
    assert (switch._notifications, one.notifiers) == (None, {})
    async with receiver() as it:
        config = {"notifications": {"webhook": [{"name": "a", "url": it.url, "group_seconds": 0}]}}
        one.tell(made(event()))
        await switch.configure(Config.model_validate(config))
        await it.until(1)
        await switch.configure(Config())
        assert one.notifiers == {}
        await switch.stop()
