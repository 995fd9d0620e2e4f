"""Store due times across restarts of vllm-watch. A missed engine restart is logged, then requested late or skipped."""

import contextlib
from collections.abc import Iterable

import structlog

from vllm_watch.errors import JournalError
from vllm_watch.restart.checks import clock
from vllm_watch.restart.controls import Controls
from vllm_watch.settings.restart_times import ScheduleSettings
from vllm_watch.state.attempt import Attempt
from vllm_watch.state.journal import Entry, Journal

_log = structlog.get_logger()

LATE_SECONDS = 60.0
"""A due time counts as missed after this many seconds. In that case the watcher was down or suspended, or the clock was set."""


def reason(schedule: ScheduleSettings) -> str:
    """Return the reason of a schedule's requests and attempts."""
    return f"the schedule {schedule.name} is due"


class Scheduled:
    """The last due time of each schedule, in the journal."""

    def __init__(self, controls: Controls, journal: Journal) -> None:
        self._controls = controls
        self._journal = journal

    def since_t(
        self, target: str, schedule: ScheduleSettings, attempts: Iterable[Attempt], now_t: float
    ) -> float:
        """Return the Unix time after which to search for due times.

        If the last request was not carried out before the watcher ended, its due time is found again.
        """
        last_t = self._controls.scheduled_t(target, schedule.name)
        if last_t is None or last_t > now_t:
            return now_t
        made = any(
            each.helped_since(target, last_t)
            or (each.target == target and each.reason == reason(schedule)
                and each.began_t >= last_t and (each.spent or each.open or each.state == "dry_run"))
            for each in attempts
        )  # fmt: skip
        waits = not made and now_t - last_t <= schedule.misfire_seconds
        return last_t - 1.0 if waits else last_t

    async def note(
        self, target: str, schedule: ScheduleSettings, due_t: float, now_t: float
    ) -> None:
        late_s = now_t - due_t
        with contextlib.suppress(JournalError):
            await self._controls.set_scheduled(target, schedule.name, due_t)
            if late_s <= LATE_SECONDS:
                return
            kept = late_s <= schedule.misfire_seconds
            after = (
                "requested now" if kept else f"skipped: later than {schedule.misfire_seconds:g} s"
            )
            missed = f"{reason(schedule)} since {clock(due_t)}, {late_s / 60:.0f} min late"
            _log.warning("schedule_missed", target=target, because=missed, after=after)
            await self._journal.note(Entry(
                t=now_t, actor="vllm-watch", source="schedule", action="missed", target=target, reason=missed,
                after=after,
            ))  # fmt: skip
