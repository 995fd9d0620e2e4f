"""Weekly windows in a time zone, which allow or forbid restarts.

A window belongs to the day on which it begins: `Fri 22:00-04:00` ends on Saturday. A DST change
may shorten windows that allow restarts, and lengthen windows that forbid them. Source: kured's
time windows.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

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
    text: str

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


def parse(text: str) -> Window:
    """Parse a window such as `Mon-Fri 22:00-04:00` or `Sat,Sun 00:00-24:00`. Raises ValueError with an explanation."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not DAYS HH:MM-HH:MM")
    days = _days(match["days"]) if match["days"] else frozenset(range(7))
    begin, end = _time(match["from"]), _time(match["to"])
    if begin == end and match["to"] != "24:00":
        raise ValueError(f"{text!r} begins when it ends: write 00:00-24:00 for a whole day")
    return Window(days, begin, end, text.strip())


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
