"""Compute the due times of schedules, and check their conditions.

Due times are in local time. If a clock change repeats a local time, only the first occurrence is
due. If a clock change skips a local time, the schedule is due one hour later. Intervals are counted
from a fixed moment, not from the start of the watcher. A due time that was missed while the watcher
was down is logged, then requested late or skipped (restarts.py).
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import structlog

from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.signals.records import TargetSignals

_log = structlog.get_logger()

TICK_SECONDS = 1.0

_ANCHOR_T = datetime(2026, 1, 5, tzinfo=UTC).timestamp()

_CLOCK_CHANGE_MAX = timedelta(hours=3)
"""A clock change is at most this large, so the search starts this much earlier."""

_SEARCH_SPAN = timedelta(days=366 * 45)
"""The search ends this far ahead. Within 40 years, 29 February falls on every weekday."""

Due = Callable[[str, ScheduleSettings], None]
Since = Callable[[str, ScheduleSettings], float]  # returns the Unix time after which to search


def next_due(schedule: ScheduleSettings, zone: str, after_t: float) -> float | None:
    """Return the first due time after Unix time `after_t`, or None."""
    if schedule.interval_seconds is not None:
        passed = (after_t - _ANCHOR_T) // schedule.interval_seconds
        return _ANCHOR_T + (passed + 1) * schedule.interval_seconds
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - takes memory

    trigger = CronTrigger.from_crontab(schedule.cron, timezone=UTC)
    trigger.end_date = datetime.fromtimestamp(after_t, UTC) + _SEARCH_SPAN
    local = ZoneInfo(zone)
    wall = datetime.fromtimestamp(after_t, local).replace(tzinfo=UTC) - _CLOCK_CHANGE_MAX
    while True:
        found: datetime | None = trigger.get_next_fire_time(None, wall)
        if found is None:
            return None
        t = found.replace(tzinfo=local, fold=0).timestamp()
        if t > after_t:
            return t
        wall = found + timedelta(seconds=1)


def last_due(schedule: ScheduleSettings, zone: str, due_t: float, now_t: float) -> float:
    """Return the latest due time within the last `misfire_seconds` before `now_t`. If there is none, return `due_t`."""
    since_t = now_t - schedule.misfire_seconds
    if since_t > due_t:
        later_t = next_due(schedule, zone, since_t)
        if later_t is None or later_t > now_t:
            return due_t
        due_t = later_t
    # Bisect, because a schedule for every minute has half a million due times a year.
    end_t = now_t
    while end_t - due_t > 1.0:
        middle_t = (due_t + end_t) / 2
        later_t = next_due(schedule, zone, middle_t)
        if later_t is not None and later_t <= now_t:
            due_t = later_t
        else:
            end_t = middle_t
    return due_t


@dataclass(slots=True)
class _Timer:
    target: str
    schedule: ScheduleSettings
    zone: str
    due_t: float | None = None  # None if never again
    at_t: float = 0.0

    def wait_for_next(self, after_t: float) -> None:
        self.due_t = next_due(self.schedule, self.zone, after_t)
        jitter_s = random.uniform(0.0, self.schedule.jitter_seconds)  # noqa: S311 - spreads a fleet
        self.at_t = (self.due_t or 0.0) + jitter_s


class Schedule:
    """The due times of all targets' schedules. Nothing is due before `start`."""

    def __init__(self, due: Due, since: Since = lambda *_: time.time()) -> None:
        """`due` is called on the event loop and must not block."""
        self.fell_due: dict[tuple[str, str], float] = {}  # last due time by target and schedule
        self._due = due
        self._since = since
        self._timers: dict[str, _Timer] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="schedules")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def set(self, targets: Iterable[tuple[str, RestartSettings]]) -> None:
        """Replace all schedules. Unchanged ones keep their next time."""
        before, self._timers = self._timers, {}
        for target, restart in targets:
            for each in restart.schedules:
                made_of = f"{target}\n{each.model_dump_json()}\n{restart.time_zone}"
                timer = before.get(made_of)
                if timer is None:
                    timer = _Timer(target, each, restart.time_zone)
                    timer.wait_for_next(self._since(target, each))
                self._timers[made_of] = timer

    def next_t(self, target: str) -> float | None:
        times = [
            each.at_t for each in self._timers.values() if each.target == target and each.due_t
        ]
        return min(times, default=None)

    async def _run(self) -> None:
        while True:
            for timer in list(self._timers.values()):
                try:
                    self._check(timer, time.time())
                except Exception:  # noqa: BLE001 - the other schedules continue
                    _log.exception(
                        "schedule_broke", target=timer.target, schedule=timer.schedule.name
                    )
                await asyncio.sleep(0)  # yield: a whole fleet may be due at once
            await asyncio.sleep(TICK_SECONDS)

    def _check(self, timer: _Timer, now_t: float) -> None:
        if timer.due_t is None or now_t < timer.at_t:
            return
        due_t = last_due(timer.schedule, timer.zone, timer.due_t, now_t)
        timer.wait_for_next(max(now_t, due_t))
        self.fell_due[timer.target, timer.schedule.name] = due_t
        self._due(timer.target, timer.schedule)


def condition(schedule: ScheduleSettings, signals: TargetSignals | None) -> str | None:
    """Return why a condition of the schedule does not hold or is unknown, else None."""
    if schedule.uptime_seconds_min:
        # While nothing answers, process_start_time may be that of a dead process.
        if signals is None or not signals.up or signals.process_start_time is None:
            return "the server's uptime is unknown"
        uptime_s = signals.t - signals.process_start_time
        if uptime_s < schedule.uptime_seconds_min:
            return f"it has run for {uptime_s:.0f} s, less than {schedule.uptime_seconds_min:.0f}"
    limit = schedule.throughput_ratio_max
    if limit is not None:
        engines = signals.engines.values() if signals is not None else ()
        ratios = [each.throughput_ratio for each in engines if each.throughput_ratio is not None]
        if not ratios:
            return "its throughput relative to a fresh engine is unknown"
        if min(ratios) > limit:
            return f"its throughput is {min(ratios):.0%} of a fresh engine's, more than {limit:.0%}"
    return None


def reason(schedule: ScheduleSettings) -> str:
    """Return the reason of a schedule's requests and attempts."""
    return f"the schedule {schedule.name} is due"
