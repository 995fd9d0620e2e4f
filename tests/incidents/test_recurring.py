"""Trouble that comes again and again: told once, with how often and how long."""

import json
from functools import partial

import pytest

from tests.incidents.test_lifecycle import Story, collapse, stall, verdict
from vllm_watch.incidents.lifecycle import Lifecycle

failing = partial(verdict, "engine_failing", cause="aborts", severity="ticket")


def episodes(story, count, *, ill=12, well=84, made=stall):
    """Trouble that comes again and again: each time for `ill` looks, then `well` looks without it."""
    for _ in range(count):
        story.look(made(), times=ill).look(made(state="clear"), times=well)
    return story


def news(story):
    """Return the number of the times at which people are told: its incident is no more of the same when it opens."""
    opened = [each for each in story.events if each["event"] == "opened"]
    return [each.get("times", 1) for each in opened if not each.get("recurring", {}).get("earlier")]


@pytest.mark.parametrize("period_s", [600, 1200, 2400, 3600, 14_400])
@pytest.mark.parametrize("made", [stall, collapse, failing])
def test_what_comes_back_is_told_at_doubling_distances(period_s, made):
    """A minute of trouble every 10, 20 or 40 minutes, or every four hours, 33 times: it is news six times."""
    story = Story(step=max(15.0, period_s / 80))
    ill = max(1, round(60 / story.step))
    for _ in range(33):
        story.look(made(), times=ill).look(made("clear"), times=round(period_s / story.step) - ill)
    assert news(story) == [1, 2, 4, 8, 16, 32]


def test_each_time_tells_how_often_it_came_and_who_told_people():
    """A minute each, eight minutes apart: how often, within what time, and how long in all; the first says nothing."""
    story = episodes(Story(), 3)
    first, second, third = (each for each in story.events if each["event"] == "opened")
    assert first.get("recurring") is None
    assert (second["recurring"]["times"], second["recurring"]["earlier"]) == (2, "")
    over = story.events[-1]["recurring"]
    assert third["recurring"]["earlier"] == over["earlier"] == second["id"]
    assert (over["times"], over["within_seconds"], over["ill_seconds"]) == (3, 1020, 180)
    assert over["text"] == "recurring: 3rd time in 17 min, 3 min in all"


def test_a_dead_engine_is_told_though_its_trouble_was_known():
    """The third time does not end: it is told again once the trouble has lasted twice as long in all as when it was told."""
    story = episodes(Story(), 2).look(stall(), times=24)
    assert story.lifecycle.incidents[0].recurring.told
    story.look(stall(), times=2)
    assert not story.lifecycle.incidents[0].recurring.told


def test_a_page_that_stays_is_told_however_long_its_troubles_were():
    """An engine that died twice for hours and dies again is told after five minutes."""
    story = episodes(Story(step=15.0), 2, ill=1000, well=40).look(stall(), times=18)
    assert story.lifecycle.incidents[0].recurring.told
    story.look(stall(), times=4)
    assert not story.lifecycle.incidents[0].recurring.told


def test_another_cause_is_no_more_of_the_same():
    """It is told, though the kind is the same."""
    story = episodes(Story(), 2).look(verdict("engine_stalled", cause="rank_wait"))
    (other,) = story.lifecycle.incidents
    assert (other.recurring.times, other.recurring.told) == (3, False)


def test_a_cause_that_is_known_only_later_each_time_is_the_same():
    """It opens without a cause, hangs, and then waits for a rank: every time the same, and news at doubling distances."""
    story = Story(step=15.0)
    for _ in range(9):
        for cause in ("unknown", "hang", "rank_wait"):
            story.look(verdict("engine_stalled", cause=cause), times=4)
        story.look(stall("clear"), times=80)
    assert news(story) == [1, 2, 4, 8]


def test_another_family_is_a_first_time():
    """Full caches that come again and again hide no slow engine; another cause of the same family is more of the same."""
    story = episodes(Story(), 3, made=partial(collapse, cause="kv_pinning"))
    story.look(collapse(cause="slow_engine"))
    assert story.lifecycle.incidents[0].recurring is None
    story = episodes(Story(), 2, made=partial(collapse, cause="kv_pinning"))
    story.look(collapse(cause="kv_leak"))
    assert story.lifecycle.incidents[0].recurring.told


def test_a_page_is_no_more_of_what_was_told_as_a_ticket():
    """Tickets that recur wake nobody: the first of them that is a page does, also if it becomes one while it lasts."""
    story = episodes(Story(), 2, made=partial(stall, severity="ticket"))
    story.look(stall(severity="ticket"), times=2)
    assert story.lifecycle.incidents[0].recurring.told
    story.look(stall())
    assert not story.lifecycle.incidents[0].recurring.told
    page = story.lifecycle.incidents[0].id
    story.look(stall("clear"), times=84).look(stall())
    assert story.lifecycle.incidents[0].recurring.earlier == page


def test_what_stayed_away_for_a_day_is_a_first_time():
    story = episodes(Story(step=15.0), 3).look(stall("clear"), times=5760).look(stall())
    assert story.lifecycle.incidents[0].recurring is None


def test_a_cause_that_is_learnt_later_is_counted_with_its_family():
    """A collapse opens without a cause, and is known as slow at the next look: that family came twice before."""
    story = episodes(Story(), 2, made=partial(collapse, cause="slow_engine"))
    story.look(collapse()).look(collapse(cause="slow_engine"))
    (third,) = story.lifecycle.incidents
    assert (third.times, third.recurring.times, third.recurring.told) == (3, 3, True)


def test_flickering_is_one_time():
    """Trouble that is gone for less than ten seconds has not come back."""
    story = Story()
    for _ in range(6):
        story.look(stall(), times=3).look(stall("clear"))
    assert story.lifecycle.incidents[0].recurring is None


def test_what_recurs_outlives_the_watcher():
    story = episodes(Story(), 2)
    second = story.events[-1]["id"]
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("engine_stalled",))
    story.lifecycle = again
    story.look(stall())
    assert again.incidents[0].recurring.earlier == second
