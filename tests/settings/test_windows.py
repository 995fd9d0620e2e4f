"""Windows and freezes: days, midnight, time zones, and the nights on which the clocks change."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from vllm_watch.settings import restart_times
from vllm_watch.settings.restart_times import parse_window

BERLIN = ZoneInfo("Europe/Berlin")  # clocks go back on 2026-10-25 and forward on 2027-03-28


def at(text: str, zone: ZoneInfo = BERLIN, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


INSIDE = {
    "in the hours": ("Mon-Fri 01:00-05:00", "2026-11-23T03:00", True),
    "at the begin": ("Mon-Fri 01:00-05:00", "2026-11-23T01:00", True),
    "at the end": ("Mon-Fri 01:00-05:00", "2026-11-23T05:00", False),
    "another day": ("Mon-Fri 01:00-05:00", "2026-11-22T03:00", False),
    "over midnight, the evening": ("Fri 22:00-04:00", "2026-11-20T23:00", True),
    "over midnight, the morning after": ("Fri 22:00-04:00", "2026-11-21T03:59", True),
    "over midnight, the morning before": ("Fri 22:00-04:00", "2026-11-20T03:00", False),
    "over the week's end": ("Sun 22:00-04:00", "2026-11-23T02:00", True),
    "days that wrap": ("Sat-Mon 00:00-24:00", "2026-11-23T12:00", True),
    "days listed": ("Tue, Thu 10:00-11:00", "2026-11-26T10:30", True),
    "every day": ("10:00-11:00", "2026-11-22T10:30", True),
    "a whole day": ("Sat 00:00-24:00", "2026-11-21T23:59", True),
}


@pytest.mark.parametrize(("text", "moment", "inside"), INSIDE.values(), ids=INSIDE)
def test_window(text: str, moment: str, inside: bool) -> None:
    """A window belongs to the day on which it begins."""
    assert (
        restart_times.open_until([parse_window(text)], BERLIN, at(moment)) is not None
    ) is inside


def test_hour_that_comes_twice() -> None:
    """02:00 to 03:00 in the night that has it twice: allowed only in the second, forbidden in both."""
    window = [parse_window("02:00-03:00")]
    first, second = at("2026-10-25T02:30"), at("2026-10-25T02:30", fold=1)
    assert second - first == 3600
    assert restart_times.open_until(window, BERLIN, first) is None
    assert restart_times.open_until(window, BERLIN, second) is not None
    assert restart_times.open_until(window, BERLIN, first, longer=True) is not None


def test_hour_that_is_missing() -> None:
    """02:00 to 03:00 in the night that has none of it: never allowed, and what forbids spans the gap."""
    window = [parse_window("02:00-03:00")]
    for minute in (0, 30, 59):
        moment = at("2027-03-28T01:00") + 3600 + 60 * minute
        assert restart_times.open_until(window, BERLIN, moment) is None
    before, after = at("2027-03-28T01:30"), at("2027-03-28T03:30")
    assert restart_times.open_until(window, BERLIN, before, longer=True) is not None
    assert restart_times.open_until(window, BERLIN, after, longer=True) is None


def test_next_open() -> None:
    """Now where one is open, else the nearest of all, within a week; none of none."""
    both = [parse_window("Mon 01:00-05:00"), parse_window("Wed 02:00-03:00")]
    assert restart_times.next_open(both, BERLIN, at("2026-11-23T02:00")) == at("2026-11-23T02:00")
    assert restart_times.next_open(both, BERLIN, at("2026-11-23T06:00")) == at("2026-11-25T02:00")
    assert restart_times.next_open(both, BERLIN, at("2026-11-25T04:00")) == at("2026-11-30T01:00")
    assert restart_times.next_open([], BERLIN, at("2026-11-25T04:00")) is None


WRONG = {
    "empty": "",
    "no hours": "Mon-Fri",
    "unknown day": "Mun 01:00-02:00",
    "no such hour": "25:00-26:00",
    "no such minute": "10:00-10:75",
    "no length": "10:00-10:00",
    "words": "at night",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_wrong_window_is_refused(text: str) -> None:
    """What cannot be read is said, and never taken for always or never."""
    with pytest.raises(ValueError, match=r"\S"):
        parse_window(text)
