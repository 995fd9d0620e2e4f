"""Times of restarts: time zones, weekly windows, freezes, schedules.

A window belongs to the day on which it begins: `Fri 22:00-04:00` ends on Saturday. A DST change
may shorten windows that allow restarts, and lengthen windows that forbid them. Source: kured's
time windows.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vllm_watch.settings.base import Name, Seconds, Settings, problem, quoted

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_TEXT = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}(?:\s*[-,]\s*[A-Za-z]{3})*)\s+)?"
    r"(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2})"
)
_SEARCH_DAYS = 8  # a weekly window reopens within this many days


@dataclass(frozen=True, slots=True)
class Window:
    """A time range on some weekdays."""

    days: frozenset[int]  # 0 is Monday
    begin: time
    end: time  # on the next day, unless later than `begin`

    def span(self, day: date, zone: tzinfo, *, longer: bool) -> tuple[float, float]:
        last = day if self.end > self.begin else day + timedelta(days=1)
        first, second = (min, max) if longer else (max, min)
        return (
            first(_moments(datetime.combine(day, self.begin), zone)),
            second(_moments(datetime.combine(last, self.end), zone)),
        )


def _moments(wall: datetime, zone: tzinfo) -> tuple[float, float]:
    """Return both Unix times of a local time. They differ only at a DST change."""
    return (
        wall.replace(tzinfo=zone, fold=0).timestamp(),
        wall.replace(tzinfo=zone, fold=1).timestamp(),
    )


def parse_window(text: str) -> Window:
    """Parse a window such as `Mon-Fri 22:00-04:00` or `Sat,Sun 00:00-24:00`. Raises ValueError with an explanation."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not DAYS HH:MM-HH:MM")
    days = _days(match["days"]) if match["days"] else frozenset(range(7))
    begin, end = _time(match["from"]), _time(match["to"])
    if begin == end and match["to"] != "24:00":
        raise ValueError(f"{text!r} begins when it ends: write 00:00-24:00 for a whole day")
    return Window(days, begin, end)


def _time(text: str) -> time:
    hours, minutes = (int(part) for part in text.split(":"))
    if (hours, minutes) == (24, 0):
        return time(0)
    if hours > 23 or minutes > 59:  # noqa: PLR2004
        raise ValueError(f"{text} is not a time of day")
    return time(hours, minutes)


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        for name in (first, last or first):
            if name not in DAYS:
                raise ValueError(f"{name!r} is not a day: write {', '.join(DAYS)}")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(found)


def open_until(
    windows: Sequence[Window], zone: tzinfo, t: float, *, longer: bool = False
) -> float | None:
    """Return the latest end (Unix seconds) of the windows that contain `t`, or None."""
    ends = [end for begin, end in _spans(windows, zone, t, longer=longer) if begin <= t < end]
    return max(ends, default=None)


def next_open(windows: Sequence[Window], zone: tzinfo, t: float) -> float | None:
    """Return the first time at or after `t` at which a window is open, or None."""
    if open_until(windows, zone, t) is not None:
        return t
    begins = [begin for begin, end in _spans(windows, zone, t, longer=False) if t < begin < end]
    return min(begins, default=None)


def _spans(
    windows: Iterable[Window], zone: tzinfo, t: float, *, longer: bool
) -> list[tuple[float, float]]:
    today = datetime.fromtimestamp(t, UTC).astimezone(zone).date()
    days = [today + timedelta(days=offset) for offset in range(-2, _SEARCH_DAYS + 1)]
    return [
        window.span(day, zone, longer=longer)
        for window in windows
        for day in days
        if day.weekday() in window.days
    ]


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


def _window(value: str) -> str:
    try:
        parse_window(value)
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
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    AfterValidator(lambda t: t if t.tzinfo is not None else t.replace(tzinfo=UTC)),
]


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
            raise problem("is not after begin", "write an end after its begin", "end")
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
            raise problem("has no times, or two kinds of them", remedy, "cron")
        return self
