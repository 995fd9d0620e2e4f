"""Compute the due times of schedules in local time.

If a clock change repeats a local time, only the first occurrence is due. If a clock change skips a
local time, the schedule is due one hour later. Intervals are counted from a fixed moment, not from
the start of the watcher.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from vllm_watch.settings.restart_times import ScheduleSettings

_ANCHOR_T = datetime(2026, 1, 5, tzinfo=UTC).timestamp()

_CLOCK_CHANGE_MAX = timedelta(hours=3)
"""A clock change is at most this large, so the search starts this much earlier."""

_SEARCH_SPAN = timedelta(days=366 * 45)
"""The search ends this far ahead. Within 40 years, 29 February falls on every weekday."""


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
