"""Times of restarts: time zones, weekly windows, freezes, schedules."""

from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vllm_watch.settings import windows
from vllm_watch.settings.base import Name, Problem, Seconds, Settings, problem, problems, quoted


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise problem(
            f"{quoted(value)} is not a time zone", "write one such as Europe/Berlin"
        ) from None
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str):
        return value  # YAML parsed it as a date
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        remedy = "write it as 2026-12-24T08:00:00+01:00"
        raise problem(f"{quoted(value)} is not a date and time", remedy) from None


def _with_zone(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _window(value: str) -> str:
    try:
        windows.parse(value)
    except ValueError as error:
        remedy = "write DAYS HH:MM-HH:MM, such as Mon-Fri 22:00-04:00"
        raise problem(str(error), remedy) from None
    return value


def _cron(value: str) -> str:
    if value:
        if any(character.isdigit() for character in value.rsplit(maxsplit=1)[-1]):
            cause = f"{quoted(value)} numbers its weekdays, and some programs count from Sunday, others from Monday"
            raise problem(cause, "write their names: 0 4 * * sun")
        # Imported late, because a watcher without schedules does not need it.
        from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415

        try:
            CronTrigger.from_crontab(value, timezone="UTC")
        except ValueError as error:
            remedy = "write five fields: minute hour day month weekday, such as 0 4 * * sun"
            raise problem(f"{quoted(value)} is not a cron expression ({error})", remedy) from None
    return value


Cron = Annotated[str, Field(max_length=100), AfterValidator(_cron)]
WindowText = Annotated[str, AfterValidator(_window)]
Zone = Annotated[str, AfterValidator(_zone)]
Moment = Annotated[datetime, BeforeValidator(_moment), AfterValidator(_with_zone)]


class FreezeSettings(Settings):
    """A period without restarts."""

    begin: Moment
    """Begin, such as `2026-12-24T08:00:00+01:00`; UTC without a zone."""

    end: Moment
    """End (exclusive)."""

    reason: str = Field("", max_length=200)
    """Reason, shown with every refusal."""

    @model_validator(mode="after")
    def _ends_later(self) -> "FreezeSettings":
        if self.end <= self.begin:
            remedy = "write an end after its begin"
            raise problems([Problem(("end",), "is not after begin", remedy)])
        return self


class ScheduleSettings(Settings):
    """Restarts at set times. A refused restart is retried for `misfire_seconds`, then skipped."""

    name: Name
    """Name in metrics and the journal: a slug."""

    cron: Cron = ""
    """Five cron fields, such as `0 4 * * sun`, in `restart.time_zone`."""

    interval_seconds: Seconds | None = Field(None, ge=600)
    """Interval between restarts, instead of `cron`."""

    jitter_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """Maximum random delay of each restart, so that a fleet's restarts do not coincide.
    Why: One server needs no delay."""

    misfire_seconds: Seconds = 3600.0
    """Maximum delay after the scheduled time.
    Why: A missed night window must not lead to a restart at noon."""

    uptime_seconds_min: Annotated[float, Field(ge=0)] = 0.0
    """Restart only if the server has run for at least this long.
    Why: By default a schedule has no conditions."""

    throughput_ratio_max: Annotated[float, Field(gt=0, le=1)] | None = None
    """Restart only if throughput is at most this share of a fresh engine's throughput at equal load."""

    @model_validator(mode="after")
    def _has_times(self) -> "ScheduleSettings":
        if bool(self.cron) == (self.interval_seconds is not None):
            remedy = "write either cron or interval_seconds"
            raise problems([Problem(("cron",), "has no times, or two kinds of them", remedy)])
        return self
