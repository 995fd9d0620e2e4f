"""When a schedule falls due: by the clock on the wall, each of its times once. Pure.

In the night in which clocks go back an hour comes twice: what falls due in it does so in the first of the two. In the
one in which they go forward an hour is missing: what would fall due in it does so just as long after it began. An
interval is counted from a fixed moment, and not from our own start, which would put it off for ever.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from vllm_watch.settings.restart_times import ScheduleSettings

_ANCHOR_T = datetime(
    2026, 1, 5, tzinfo=UTC
).timestamp()  # a Monday; every interval is counted from here

_CHANGE = timedelta(hours=3)
"""No clock is set by more than that in a night: so far back the search begins."""

_SEARCHED = timedelta(days=366 * 45)
"""A 29th of February on a Monday is 40 years after another at most; what is not found by then never comes."""


def next_due(schedule: ScheduleSettings, zone: str, after_t: float) -> float | None:
    """Return the first time after Unix time `after_t`; None: it never falls due again."""
    if schedule.interval_seconds is not None:
        passed = (after_t - _ANCHOR_T) // schedule.interval_seconds
        return _ANCHOR_T + (passed + 1) * schedule.interval_seconds
    # Here, so that who has no schedule does not load it.
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415

    trigger = CronTrigger.from_crontab(schedule.cron, timezone=UTC)
    trigger.end_date = datetime.fromtimestamp(after_t, UTC) + _SEARCHED
    local = ZoneInfo(zone)
    wall = datetime.fromtimestamp(after_t, local).replace(tzinfo=UTC) - _CHANGE
    while True:
        # On the wall every time comes once; which moment that is, its zone knows.
        found: datetime | None = trigger.get_next_fire_time(None, wall)
        if found is None:
            return None
        t = found.replace(tzinfo=local, fold=0).timestamp()
        if t > after_t:
            return t
        wall = found + timedelta(seconds=1)


def last_due(schedule: ScheduleSettings, zone: str, due_t: float, now_t: float) -> float:
    """Return the last time up to `now_t` that may still be made up for; where there is none, `due_t`."""
    since_t = now_t - schedule.misfire_seconds
    if since_t > due_t:
        later_t = next_due(schedule, zone, since_t)
        if later_t is None or later_t > now_t:
            return due_t
        due_t = later_t
    # Halved, not walked through: of every minute there are half a million in a year.
    end_t = now_t
    while end_t - due_t > 1.0:
        middle_t = (due_t + end_t) / 2
        later_t = next_due(schedule, zone, middle_t)
        if later_t is not None and later_t <= now_t:
            due_t = later_t
        else:
            end_t = middle_t
    return due_t
