"""Freezes from a calendar: what people's calendars write is read, and what is not understood is an error."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from vllm_watch.restart import ical, ical_rule

BERLIN = ZoneInfo("Europe/Berlin")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def calendar(*lines, event=True):
    inside = ["BEGIN:VEVENT", "SUMMARY:freeze", *lines, "END:VEVENT"] if event else lines
    whole = ["BEGIN:VCALENDAR", "VERSION:2.0", *inside, "END:VCALENDAR"]
    return "\r\n".join(whole) + "\r\n"


def spans(text, begin="2026-12-01", end="2027-01-15", zone=UTC):
    """(begin, end) of the freezes, in UTC."""
    return [
        (f"{datetime.fromtimestamp(f.begin_t, UTC):%m-%d %H:%M}", f"{datetime.fromtimestamp(f.end_t, UTC):%m-%d %H:%M}")
        for f in ical.freezes(text, zone, at(begin), at(end))
    ]  # fmt: skip


TIMES = {
    "in UTC": (("DTSTART:20261224T080000Z", "DTEND:20261227T060000Z"), [("12-24 08:00", "12-27 06:00")]),
    "in a named zone": (
        ("DTSTART;TZID=Europe/Berlin:20261224T080000", "DTEND;TZID=Europe/Berlin:20261224T200000"),
        [("12-24 07:00", "12-24 19:00")],
    ),
    "in a quoted zone": (
        ('DTSTART;TZID="America/New_York":20261224T080000', "DURATION:PT2H"), [("12-24 13:00", "12-24 15:00")],
    ),
    "in the zone of the settings": (
        ("DTSTART:20261224T080000", "DURATION:P1DT2H30M"), [("12-24 07:00", "12-25 09:30")],
    ),
    "a whole day": (("DTSTART;VALUE=DATE:20261224",), [("12-23 23:00", "12-24 23:00")]),
    "whole days": (
        ("DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20270102"), [("12-23 23:00", "01-01 23:00")],
    ),
    "that began long ago": (
        ("DTSTART:20260101T000000Z", "DTEND:20270101T000000Z"), [("01-01 00:00", "01-01 00:00")],
    ),
    "over before": (("DTSTART:20261101T000000Z", "DTEND:20261102T000000Z"), []),
    "later": (("DTSTART:20270301T000000Z", "DTEND:20270302T000000Z"), []),
    "cancelled": (("DTSTART:20261224T080000Z", "DURATION:PT1H", "STATUS:CANCELLED"), []),
    "of no length": (("DTSTART:20261224T080000Z",), []),
    "each Friday evening, over the night": (
        ("DTSTART;TZID=Europe/Berlin:20261204T220000", "DURATION:PT6H", "RRULE:FREQ=WEEKLY;COUNT=3"),
        [("12-04 21:00", "12-05 03:00"), ("12-11 21:00", "12-12 03:00"), ("12-18 21:00", "12-19 03:00")],
    ),
    "each Friday, but not on one": (
        ("DTSTART:20261204T220000Z", "DURATION:PT1H", "RRULE:FREQ=WEEKLY;UNTIL=20261218T220000Z",
         "EXDATE:20261211T220000Z"),
        [("12-04 22:00", "12-04 23:00"), ("12-18 22:00", "12-18 23:00")],
    ),
    "and on another day": (
        ("DTSTART:20261204T220000Z", "DURATION:PT1H", "RDATE:20261206T120000Z,20261207T120000Z"),
        [("12-04 22:00", "12-04 23:00"), ("12-06 12:00", "12-06 13:00"), ("12-07 12:00", "12-07 13:00")],
    ),
    "each year since long ago": (
        ("DTSTART;VALUE=DATE:20001224", "DTEND;VALUE=DATE:20001227", "RRULE:FREQ=YEARLY"),
        [("12-23 23:00", "12-26 23:00")],
    ),
    "with an alarm and a line that is folded": (
        ("DTSTART:20261224T080000Z", "DTE", " ND:20261224T090000Z", "BEGIN:VALARM", "TRIGGER:-PT15M", "END:VALARM"),
        [("12-24 08:00", "12-24 09:00")],
    ),
    "that a clock meets twice": (  # 02:30 exists twice when summer ends: the longer freeze holds
        ("DTSTART;TZID=Europe/Berlin:20261025T023000", "DTEND;TZID=Europe/Berlin:20261025T024500"), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "found"), TIMES.values(), ids=TIMES)
def test_times(lines, found):
    """When an event freezes."""
    assert spans(calendar(*lines), zone=BERLIN) == found


def test_an_hour_that_comes_twice_freezes_for_both():
    """What forbids is read as the longer."""
    text = calendar(
        "DTSTART;TZID=Europe/Berlin:20261025T023000", "DTEND;TZID=Europe/Berlin:20261025T024500"
    )
    assert spans(text, "2026-10-01", "2026-11-01") == [("10-25 00:30", "10-25 01:45")]


def test_the_summary_is_the_reason():
    """Without the escapes of the format."""
    text = calendar("DTSTART:20261224T080000Z", "DURATION:PT1H").replace(
        "SUMMARY:freeze", r"SUMMARY;LANGUAGE=en:Christmas\, and\nno releases"
    )
    (found,) = ical.freezes(text, UTC, at("2026-12-01"), at("2027-01-01"))
    assert found.reason == "Christmas, and no releases"


WRONG = {
    "no calendar": ("hello", "is no line of an iCalendar file"),
    "an empty file": ("", "it is no iCalendar file, or its end is missing"),
    "cut off": (calendar("DTSTART:20261224T080000Z")[:-20], "END:VEV ends nothing"),
    "cut off at a line": (calendar("DTSTART:20261224T080000Z").replace("END:VCALENDAR\r\n", ""), "its end is missing"),
    "no beginning": (calendar("DURATION:PT1H"), "event 'freeze': it has no DTSTART"),
    "a month 13": (calendar("DTSTART:20261324T080000Z"), "is no date or time"),
    "a zone of Windows": (
        calendar("DTSTART;TZID=W. Europe Standard Time:20261224T080000", "DURATION:PT1H"),
        "'W. Europe Standard Time' is no time zone",
    ),
    "a duration in words": (calendar("DTSTART:20261224T080000Z", "DURATION:an hour"), "is no duration"),
    "hourly": (calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RRULE:FREQ=HOURLY"), "comes again HOURLY"),
    "the last working day": (
        calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RRULE:FREQ=MONTHLY;BYDAY=MO,TU;BYSETPOS=-1"),
        "says 'BYSETPOS=-1', which is not read here",
    ),
    "a week of the year": (
        calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY;BYWEEKNO=20"), "BYWEEKNO=20",
    ),
    "the 20th Monday of a year": (
        calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RRULE:FREQ=YEARLY;BYDAY=20MO"), "is no weekday",
    ),
    "two rules": (
        calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", "RRULE:FREQ=WEEKLY"), "several RRULEs",
    ),
    "periods": (
        calendar("DTSTART:20261224T080000Z", "DURATION:PT1H", "RDATE;VALUE=PERIOD:20261224T080000Z/PT1H"), "periods",
    ),
    "too many events": (
        calendar(*["BEGIN:VEVENT", "DTSTART:20261224T080000Z", "END:VEVENT"] * 5001, event=False), "more than 5000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_not_understood_is_an_error(text, said):
    """A freeze that cannot be read must not be taken for none."""
    with pytest.raises(ValueError, match=r".") as error:
        ical.freezes(text, UTC, at("2026-12-01"), at("2027-01-01"))
    assert said in str(error.value)


RULES = {
    "every third day": ("FREQ=DAILY;INTERVAL=3", "2026-12-01", [1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31]),
    "on working days": ("FREQ=DAILY;BYDAY=MO,TU,WE,TH,FR;COUNT=7", "2026-12-03", [3, 4, 7, 8, 9, 10, 11]),
    "every second week, on two days": ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU", "2026-12-01", [1, 6, 15, 20, 29]),
    "a week that begins on Sunday": ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU", "2026-12-01", [1, 13, 15, 27, 29]),
    "on the day of the first": ("FREQ=MONTHLY", "2026-10-31", [31]),
    "on the last day": ("FREQ=MONTHLY;BYMONTHDAY=-1", "2026-09-30", [31]),
    "on the second Tuesday": ("FREQ=MONTHLY;BYDAY=2TU", "2026-09-08", [8]),
    "on the last Friday": ("FREQ=MONTHLY;BYDAY=-1FR", "2026-09-25", [25]),
    "on a Friday 13th": ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "2026-11-13", []),
    "in December": ("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24,31", "2020-12-24", [24, 31]),
    "on the fourth Thursday of a month": ("FREQ=YEARLY;BYMONTH=12;BYDAY=4TH", "2020-12-24", [24]),
    "so often, and no more": ("FREQ=WEEKLY;COUNT=5", "2026-11-13", [4, 11]),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "first", "days"), RULES.values(), ids=RULES)
def test_rules(rule, first, days):
    """The days of December 2026 on which it comes again."""
    found = ical_rule.days(
        ical_rule.parse(rule), date.fromisoformat(first), date(2026, 12, 1), date(2026, 12, 31)
    )
    assert [day.day for day in found] == days
