"""When restarts may happen and when they fall due: time zones, weekly windows, dated freezes, schedules."""

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
        return value  # YAML has read a date already
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
            cause = f"{quoted(value)} numbers its weekdays, of which some programs begin with Sunday, others with Monday"
            raise problem(cause, "write their names: 0 4 * * sun")
        # Here, so that a watcher without schedules does not load it.
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
    """A span of time in which nothing is restarted."""

    begin: Moment
    """Such as `2026-12-24T08:00:00+01:00`; without a zone UTC."""

    end: Moment
    """The first moment after it."""

    reason: str = Field("", max_length=200)
    """Shown with every refusal."""

    @model_validator(mode="after")
    def _ends_later(self) -> "FreezeSettings":
        if self.end <= self.begin:
            remedy = "write an end after its begin"
            raise problems([Problem(("end",), "is not after begin", remedy)])
        return self


class ScheduleSettings(Settings):
    """A restart at set times. One that a check refuses waits for `misfire_seconds`, then is left out."""

    name: Name
    """What metrics and the journal call it: a slug."""

    cron: Cron = ""
    """Five fields, such as `0 4 * * sun`, in `restart.time_zone`."""

    interval_seconds: Seconds | None = Field(None, ge=600)
    """In place of `cron`: from one to the next."""

    jitter_seconds: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """Each run comes up to so much later, so that a fleet does not restart as one.
    Why: One server alone needs none."""

    misfire_seconds: Seconds = 3600.0
    """How late it may still begin when it could not at its time.
    Why: A window that has passed is not made up for at noon."""

    uptime_seconds_min: Annotated[float, Field(ge=0)] = 0.0
    """Only if the server runs at least so long.
    Why: A schedule without conditions means just that."""

    throughput_ratio_max: Annotated[float, Field(gt=0, le=1)] | None = None
    """Only if it does at most this share of what it did when fresh, at equal load."""

    @model_validator(mode="after")
    def _has_times(self) -> "ScheduleSettings":
        if bool(self.cron) == (self.interval_seconds is not None):
            remedy = "write either cron or interval_seconds"
            raise problems([Problem(("cron",), "has no times, or two kinds of them", remedy)])
        return self
