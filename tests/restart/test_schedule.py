"""Schedules: what falls due when, in which zone, and under which conditions."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.restart.station import station
from vllm_watch.restart import schedule as schedules
from vllm_watch.restart.schedule import Schedule, condition, last_due, next_due
from vllm_watch.settings.restart import RestartSettings, ScheduleSettings
from vllm_watch.signals.records import EngineSignals, TargetSignals

NOW = 1_790_000_000.0
SIGNALS = TargetSignals(
    target="chat-0", t=NOW, up=True, outcome="ok", state="serving", state_text="",
    process_start_time=NOW - 86_400,
    engines={
        "0": EngineSignals(engine="0", throughput_ratio=0.95),
        "1": EngineSignals(engine="1", throughput_ratio=0.7),
        "2": EngineSignals(engine="2"),
    },
)  # fmt: skip
OLD = replace(SIGNALS, process_start_time=None, engines={"0": EngineSignals(engine="0")})


def nightly(**keys):
    return ScheduleSettings(name="nightly", **{"cron": "0 4 * * sun"} | keys)


def settings(schedule, zone="UTC"):
    return RestartSettings(schedules=(schedule,), time_zone=zone)


async def next_of(restart):
    schedule = Schedule(lambda *_: None)
    schedule.start()
    try:
        schedule.set([("chat-0", restart)])
        return schedule.next_t("chat-0")
    finally:
        schedule.stop()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
async def test_cron_falls_due_in_its_zone(zone):
    next_t = await next_of(settings(nightly(), zone))

    assert next_t is not None
    local = datetime.fromtimestamp(next_t, ZoneInfo(zone))
    assert (local.weekday(), local.hour, local.minute) == (6, 4, 0)
    assert 0 < next_t - time.time() <= 7 * 86_400 + 3600


async def test_interval_is_not_put_off_by_our_own_restarts():
    restart = settings(nightly(cron="", interval_seconds=86_400))
    first = await next_of(restart)
    await asyncio.sleep(0.05)
    assert first == await next_of(restart)
    assert first is not None
    assert datetime.fromtimestamp(first, UTC).hour == 0


async def test_what_falls_due_is_told_once():
    """A schedule that is due now is handed over, on the event loop, with its target."""
    told: list[tuple[str, str]] = []
    schedule = Schedule(lambda target, each: told.append((target, each.name)))
    schedule.start()
    try:
        every_second = nightly().model_copy(update={"cron": "", "interval_seconds": 1})
        restart = RestartSettings().model_copy(update={"schedules": (every_second,)})
        schedule.set([("chat-0", restart)])
        async with asyncio.timeout(30):
            while not told:
                await asyncio.sleep(0.05)
    finally:
        schedule.stop()
    async with asyncio.timeout(30):
        while not schedule._task.done():
            await asyncio.sleep(0.01)
    assert told[:1] == [("chat-0", "nightly")]


async def test_reload_keeps_what_did_not_change_and_drops_what_is_gone():
    """Other targets' times are not touched by one target's change."""
    schedule = Schedule(lambda *_: None)
    schedule.start()
    try:
        jittered = settings(nightly(jitter_seconds=3600))
        schedule.set([("chat-0", jittered), ("chat-1", settings(nightly()))])
        kept_t = schedule.next_t("chat-0")
        schedule.set([("chat-0", jittered)])
        assert schedule.next_t("chat-0") == kept_t
        assert schedule.next_t("chat-1") is None
    finally:
        schedule.stop()


CONDITIONS: dict[str, tuple[dict[str, Any], TargetSignals | None, str | None]] = {
    "none set": ({}, None, None),
    "up long enough": ({"uptime_seconds_min": 86_400}, SIGNALS, None),
    "up too short": ({"uptime_seconds_min": 86_401}, SIGNALS, "it has run for 86400 s, less than 86401"),
    "uptime unknown": ({"uptime_seconds_min": 60}, OLD, "uptime is unknown"),
    "never seen": ({"uptime_seconds_min": 60}, None, "uptime is unknown"),
    "gone, or loading": ({"uptime_seconds_min": 60}, replace(SIGNALS, up=False), "uptime is unknown"),
    "the worst engine is slow": ({"throughput_ratio_max": 0.8}, SIGNALS, None),
    "no engine is slow": ({"throughput_ratio_max": 0.6}, SIGNALS, "its throughput is 70% of a fresh engine's"),
    "ratio unknown": ({"throughput_ratio_max": 0.8}, OLD, "is unknown"),
    "both must hold": (
        {"throughput_ratio_max": 0.8, "uptime_seconds_min": 90_000}, SIGNALS, "less than 90000"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "signals", "words"), CONDITIONS.values(), ids=CONDITIONS)
def test_condition(keys, signals, words):
    """What is unknown does not hold."""
    said = condition(nightly(**keys), signals)
    assert (said is None) == (words is None)
    assert words is None or words in str(said)


def berlin(text):
    return datetime.fromisoformat(text).timestamp()


NIGHTS = {
    "it goes back, and half past two comes twice": ("2026-10-24T12:00+02:00", "2026-10-25T02:30+02:00"),
    "... asked between the two": ("2026-10-25T02:45+02:00", "2026-10-26T02:30+01:00"),
    "... asked in the hour that comes again": ("2026-10-25T02:15+01:00", "2026-10-26T02:30+01:00"),
    "it goes forward, and there is no half past two": ("2026-03-28T12:00+01:00", "2026-03-29T03:30+02:00"),
    "... asked after the hour that is missing began": ("2026-03-29T03:10+02:00", "2026-03-29T03:30+02:00"),
    "... asked just after it": ("2026-03-29T03:30+02:00", "2026-03-30T02:30+02:00"),
}  # fmt: skip


@pytest.mark.parametrize(("after", "due"), NIGHTS.values(), ids=NIGHTS)
def test_night_of_a_clock_change(after, due):
    assert next_due(nightly(cron="30 2 * * *"), "Europe/Berlin", berlin(after)) == berlin(due)


@given(
    cron=some.sampled_from(("*/7 * * * *", "30 2 * * *", "0 0 29 2 *", "0 4 * * sun", "59 23 31 12 *", "* 3 1 * *")),
    zone=some.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")),
    due_t=some.floats(1.7e9, 1.9e9), passed_s=some.floats(0.0, 86400.0),
)  # fmt: skip
def test_the_last_time_is_that_which_a_walk_finds(cron, zone, due_t, passed_s):
    """Over changes of the clock, too."""
    schedule, now_t = nightly(cron=cron, misfire_seconds=1e9), due_t + passed_s
    last_t = first_t = next_due(schedule, zone, due_t)
    assert first_t is not None
    while (later_t := next_due(schedule, zone, last_t)) is not None and later_t <= now_t:
        last_t = later_t
    assert last_due(schedule, zone, first_t, now_t) == last_t


def test_a_search_is_short_however_much_was_missed(monkeypatch):
    """Two years of minutes that may all be made up for, and a day that never comes."""
    searches, search = [], schedules.next_due
    monkeypatch.setattr(schedules, "next_due", lambda *how: searches.append(1) or search(*how))
    t = berlin("2026-01-01T00:00+00:00")
    minutely = nightly(cron="* * * * *", misfire_seconds=86400.0 * 800)
    assert last_due(minutely, "UTC", t, t + 730 * 86400.0) == t + 730 * 86400.0
    assert len(searches) <= 40
    assert last_due(nightly(cron="0 0 30 2 *", misfire_seconds=1e9), "UTC", t, t + 1e8) == t


MISSED = {
    "in time to be made up for": (1800.0, "requested now", 1),
    "too late": (5400.0, "skipped: later than 3600 s", 0),
}


@pytest.mark.parametrize(("late_s", "after", "asked"), MISSED.values(), ids=MISSED)
async def test_a_time_that_was_missed(tmp_path, late_s, after, asked):
    """The watcher was down: it is done late or left out, and the journal says which."""
    due = datetime.fromtimestamp(time.time() - late_s, UTC)
    daily = {"name": "nightly", "cron": f"{due.minute} {due.hour} * * *"}
    async with station(tmp_path, schedules=[daily], start=False) as one:
        schedule = one.config.restart.schedules[0]
        await one.restarts._controls.set_scheduled("a", "nightly", time.time() - 86_000.0)
        one.restarts.follow([])
        one.follow()
        await one.restarts.start()
        for _ in range(400):
            (said,) = await one.entries("missed") or (None,)
            if said is not None:
                break
            await asyncio.sleep(0.05)
        assert said is not None
        assert said.after == after
        assert "the schedule nightly is due since" in said.reason
        assert len(one.restarts.dispatcher.waiting("a")) == asked
        # The next watcher knows of it; what still waits, it takes up.
        since_t = one.restarts._since("a", schedule)
        due_t = next_due(schedule, "UTC", since_t)
        assert due_t is not None
        assert (due_t < time.time()) == bool(asked)


async def test_a_clock_that_is_set_forward_wakes_what_is_due():
    told: list[str] = []
    schedule = Schedule(lambda target, each: told.append(each.name))
    hourly = nightly(cron="0 * * * *")
    schedule.set([("chat-0", settings(hourly))])
    (timer,) = schedule._timers.values()
    assert timer.due_t is not None
    first_t = timer.due_t
    schedule._check(timer, first_t - 1.0)
    assert told == []
    schedule._check(timer, first_t + 5 * 3600.0 + 600.0)
    assert told == ["nightly"]
    assert schedule.fell_due["chat-0", "nightly"] == first_t + 5 * 3600.0
    assert timer.due_t == first_t + 6 * 3600.0
