"""The wiring in one event loop: the board's events reach the notifiers, and none comes twice."""

from contextlib import asynccontextmanager

import pytest

from tests.notify.telling import receiver
from tests.notify.test_board_alerts import board, event
from tests.told import made
from vllm_watch.config import Config
from vllm_watch.notify import notifications as notifications_module
from vllm_watch.notify.switch import NotifySwitch


@pytest.fixture(autouse=True)
def _never_by_time(monkeypatch):
    """What is told is told because something happened."""
    monkeypatch.setattr(notifications_module, "LOOK_SECONDS", 600.0)


@asynccontextmanager
async def wired(one, it):
    config = Config.model_validate({"notifications": {
        "webhook": [{"name": "oncall", "url": it.url, "group_seconds": 0}],
    }})  # fmt: skip
    switch = NotifySwitch(config, one, lambda _: False, None)
    await switch.start()
    try:
        yield switch
    finally:
        await switch.stop()


async def test_what_is_shown_is_told_at_once():
    one = board()
    async with receiver() as it:
        async with wired(one, it) as switch:
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


async def test_nothing_configured_nothing_started():
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
