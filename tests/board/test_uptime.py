"""Uptime over 24 hours, 7 and 30 days: what is unknown stands apart, and all of it outlives the watcher."""

import pytest

from vllm_watch.board.uptime import DAY_SECONDS, STATES, Uptime

T = 20_000 * DAY_SECONDS
HEALTHY, WARNING, DOWN, UNKNOWN = map(STATES.index, ("healthy", "warning", "down", "unknown"))


def shares(uptime, t):
    return [(each.up_ratio, round(each.unknown_ratio, 2)) for each in uptime.shares(t)]


def test_nothing_is_known_at_first():
    """Unknown is neither up nor down."""
    assert shares(Uptime(), T) == [(None, 1.0)] * 3


def test_up_down_and_unknown_stand_apart():
    """A day of which an hour was down, after a day that nobody watched and five good ones."""
    uptime = Uptime()
    for minute in range(5 * 24 * 60):
        uptime.push(T + 60 * minute, HEALTHY, 60.0)
    begin = T + 6 * DAY_SECONDS
    for minute in range(24 * 60):
        found = DOWN if minute < 60 else UNKNOWN if minute < 120 else WARNING
        uptime.push(begin + 60 * minute, found, 60.0)
    day, week, month = shares(uptime, begin + DAY_SECONDS - 1)
    assert day == (pytest.approx(22 / 23), 0.08)  # the hour unknown, and the one before that day
    assert week == (pytest.approx((5 * 24 + 22) / (5 * 24 + 23)), 0.15)
    assert month == (week[0], 0.8)


def test_it_outlives_the_watcher():
    """What was exported is the same again; something else is refused."""
    uptime = Uptime()
    uptime.push(T, HEALTHY, 5.0)
    uptime.push(T + 5, DOWN, 5.0)
    again = Uptime.restored(uptime.export())
    assert again.shares(T + 10) == uptime.shares(T + 10)
    for data in (b"", uptime.export()[:-1], b"\xff" * len(uptime.export())):
        with pytest.raises(ValueError, match="it "):
            Uptime.restored(data)
