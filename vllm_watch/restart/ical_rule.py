"""The recurrence rules of iCalendar that calendars write: on which days an event comes again. Pure.

Every day is looked at and asked whether the rule names it: slower than to compute them, and plain.
Source: RFC 5545, 3.3.10.
"""

import calendar
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_KEYS = frozenset(("FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "WKST"))
_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_NUMBER_MAX = 10_000
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rule:
    """One RRULE; its UNTIL is a moment, which the caller knows to read."""

    frequency: str
    interval: int = 1
    count: int | None = None
    weekdays: tuple[tuple[int, int], ...] = ()  # (which of the month, 0 for each; weekday)
    month_days: tuple[int, ...] = ()  # negative: from the month's end
    months: tuple[int, ...] = ()
    week_start: int = 0


def parse(text: str) -> Rule:
    """Return the rule. Raises ValueError for one that is not understood, in words."""
    parts = dict(_parts(text))
    frequency = parts.get("FREQ", "")
    if frequency not in _FREQUENCIES:
        raise ValueError(f"RRULE:{text[:80]} comes again {frequency or 'at no frequency'}")
    rule = Rule(
        frequency=frequency,
        interval=_number(parts, "INTERVAL", 1),
        count=_number(parts, "COUNT", 0) or None,
        weekdays=tuple(map(_weekday, _list(parts, "BYDAY"))),
        month_days=tuple(_signed(each, 31) for each in _list(parts, "BYMONTHDAY")),
        months=tuple(_signed(each, 12) for each in _list(parts, "BYMONTH")),
        week_start=_weekday(parts.get("WKST", "MO"))[1],
    )
    ordinal = any(which for which, _ in rule.weekdays)
    by_month = frequency == "MONTHLY" or (frequency == "YEARLY" and rule.months)
    by_day = frequency != "YEARLY" or rule.months or not (rule.weekdays or rule.month_days)
    if (ordinal and not by_month) or (rule.month_days and frequency == "WEEKLY") or not by_day:
        raise ValueError(f"RRULE:{text[:80]} is of a kind that is not read here")
    return rule


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for part in text.upper().strip(";").split(";"):
        key, _, value = part.partition("=")
        if key not in _KEYS or not value:
            raise ValueError(f"RRULE:{text[:80]} says {part[:30]!r}, which is not read here")
        yield key, value


def _number(parts: Mapping[str, str], key: str, default: int) -> int:
    text = parts.get(key)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,5}", text) or not 0 < int(text) <= _NUMBER_MAX:
        raise ValueError(f"{key}={text[:30]} is no number from 1 to {_NUMBER_MAX}")
    return int(text)


def _list(parts: Mapping[str, str], key: str) -> list[str]:
    return parts[key].split(",") if key in parts else []


def _signed(text: str, largest: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,2}", text) or not 0 < abs(int(text)) <= largest:
        raise ValueError(f"{text[:30]!r} is no day or month")
    return int(text)


def _weekday(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([+-]?[1-5])?([A-Z]{2})", text)
    if match is None or match[2] not in _WEEKDAYS:
        raise ValueError(f"{text[:30]!r} is no weekday")
    return int(match[1] or 0), _WEEKDAYS.index(match[2])


def days(rule: Rule, first: date, from_: date, to: date) -> Iterator[date]:
    """Yield the days from `from_` to `to` on which an event comes that first came on `first`."""
    # Instances are counted from the first one; without a count the days before need no look.
    day = first if rule.count is not None else max(first, from_)
    left = rule.count
    while day <= to and left != 0:
        if day == first or _names(rule, first, day):
            if left is not None:
                left -= 1
            if day >= from_:
                yield day
        day += _DAY


def _names(rule: Rule, first: date, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    if rule.month_days and not _in_month(rule, day):
        return False
    if rule.weekdays and not any(_is(day, *each) for each in rule.weekdays):
        return False
    return _periods(rule, first, day) % rule.interval == 0 and _by_default(rule, first, day)


def _periods(rule: Rule, first: date, day: date) -> int:
    """How many days, weeks, months or years after the first it is."""
    if rule.frequency == "DAILY":
        return (day - first).days
    if rule.frequency == "WEEKLY":
        return (_week(day, rule.week_start) - _week(first, rule.week_start)).days // 7
    if rule.frequency == "MONTHLY":
        return 12 * (day.year - first.year) + day.month - first.month
    return day.year - first.year


def _by_default(rule: Rule, first: date, day: date) -> bool:
    """What the rule does not say is as it was the first time."""
    if rule.frequency == "DAILY" or rule.weekdays or rule.month_days:
        return True
    if rule.frequency == "WEEKLY":
        return day.weekday() == first.weekday()
    if rule.frequency == "YEARLY" and not rule.months and day.month != first.month:
        return False
    return day.day == first.day


def _week(day: date, start: int) -> date:
    return day - timedelta(days=(day.weekday() - start) % 7)


def _in_month(rule: Rule, day: date) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    return day.day in rule.month_days or day.day - length - 1 in rule.month_days


def _is(day: date, which: int, weekday: int) -> bool:
    if day.weekday() != weekday:
        return False
    if which == 0:
        return True
    if which > 0:
        return (day.day - 1) // 7 + 1 == which
    length = calendar.monthrange(day.year, day.month)[1]
    return (length - day.day) // 7 + 1 == -which
