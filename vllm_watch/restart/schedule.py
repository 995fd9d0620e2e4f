"""Restarts at set times: when they fall due, and whether their conditions hold then.

APScheduler keeps the times; it decides nothing: what falls due is a request that goes through the guard.
An interval is counted from a fixed moment and not from our own start, so that a watcher that is
restarted often does not put it off for ever.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.signals.records import TargetSignals

_ANCHOR = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday; every interval is counted from here

Due = Callable[[str, ScheduleSettings], None]  # target's name, what fell due


class Schedule:
    """The times of all targets' schedules. Times pass only between `start` and `stop`."""

    def __init__(self, due: Due) -> None:
        """`due` is called on the event loop; it must not block."""
        self._due = due
        self._scheduler = AsyncIOScheduler(timezone=UTC)

    def start(self) -> None:
        """Begin. Needs a running event loop."""
        self._scheduler.start()

    def stop(self) -> None:
        """End; nothing falls due any more."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def set(self, targets: Iterable[tuple[str, RestartSettings]]) -> None:
        """Take these in place of all that was set before; a time that did not change goes on."""
        wanted: set[str] = set()
        for target, restart in targets:
            for each in restart.schedules:
                made_of = f"{target}\n{each.model_dump_json()}\n{restart.time_zone}"
                wanted.add(made_of)
                if self._scheduler.get_job(made_of) is None:
                    self._add(made_of, target, restart.time_zone, each)
        for job in self._scheduler.get_jobs():
            if job.id not in wanted:
                job.remove()

    def _add(self, made_of: str, target: str, zone: str, schedule: ScheduleSettings) -> None:
        self._scheduler.add_job(
            self._fall_due, _trigger(schedule, zone), args=(target, schedule), id=made_of, name=target,
            coalesce=True, max_instances=1, misfire_grace_time=max(1, int(schedule.misfire_seconds)),
        )  # fmt: skip

    async def _fall_due(self, target: str, schedule: ScheduleSettings) -> None:
        self._due(target, schedule)

    def next_t(self, target: str) -> float | None:
        """Return when the target's next restart falls due (Unix seconds); None: never."""
        times = [_next(job) for job in self._scheduler.get_jobs() if job.name == target]
        return min((t for t in times if t is not None), default=None)


def _next(job: Job) -> float | None:
    moment: datetime | None = getattr(job, "next_run_time", None)  # absent before the start
    return None if moment is None else moment.timestamp()


def _trigger(schedule: ScheduleSettings, zone: str) -> BaseTrigger:
    jitter = int(schedule.jitter_seconds) or None
    if schedule.interval_seconds is not None:
        return IntervalTrigger(
            seconds=int(schedule.interval_seconds), start_date=_ANCHOR, timezone=UTC, jitter=jitter
        )
    trigger = CronTrigger.from_crontab(schedule.cron, timezone=ZoneInfo(zone))
    trigger.jitter = jitter
    return trigger


def condition(schedule: ScheduleSettings, signals: TargetSignals | None) -> str | None:
    """Return why this schedule's conditions do not hold now, or None. What is unknown does not hold."""
    if schedule.uptime_seconds_min:
        if signals is None or signals.process_start_time is None:
            return "it is not known how long the server runs"
        uptime_s = signals.t - signals.process_start_time
        if uptime_s < schedule.uptime_seconds_min:
            return f"it runs for {uptime_s:.0f} s, less than {schedule.uptime_seconds_min:.0f}"
    limit = schedule.throughput_ratio_max
    if limit is not None:
        engines = signals.engines.values() if signals is not None else ()
        ratios = [each.throughput_ratio for each in engines if each.throughput_ratio is not None]
        if not ratios:
            return "its throughput, relative to when it was fresh, is not known"
        if min(ratios) > limit:
            return f"it does {min(ratios):.0%} of what it did when fresh, more than {limit:.0%}"
    return None
