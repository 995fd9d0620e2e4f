"""Report due schedules, and check their conditions."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from vllm_watch.restart.due_times import last_due, next_due
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.signals.records import TargetSignals

_log = structlog.get_logger()

TICK_SECONDS = 1.0

Due = Callable[[str, ScheduleSettings], None]
Since = Callable[[str, ScheduleSettings], float]  # returns the Unix time after which to search


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
