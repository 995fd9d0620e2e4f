"""Trouble that comes again and again: told once, with how often and how long."""

import json

from tests.incidents.test_lifecycle import Story, stall, verdict
from vllm_watch.incidents.lifecycle import Lifecycle


def episodes(story, count, *, ill=12, well=84):
    """Trouble that comes again and again: each time for `ill` looks, then `well` looks without it."""
    for _ in range(count):
        story.look(stall(), times=ill).look(stall("clear"), times=well)
    return story


def test_three_times_within_an_hour_recur():
    """A minute each, eight minutes apart: how often, within what time, and how long in all; the first two say nothing."""
    story = episodes(Story(), 3)
    opened = [each for each in story.events if each["event"] == "opened"]
    assert [each.get("recurring") is None for each in opened] == [True, True, False]
    told, over = opened[-1]["recurring"], story.events[-1]["recurring"]
    assert (told["times"], told["within_seconds"], told["ill_seconds"]) == (3, 960, 120)
    assert over["text"] == "recurring: 3rd time in 17 min, 3 min in all"
    assert (told["earlier"], over["earlier"]) == ("", "")


def test_what_was_told_as_recurring_names_who_told_it():
    """The fourth time is one more of the same, until it lasts far longer than any before."""
    story = episodes(Story(), 3)
    third = story.events[-1]["id"]
    story.look(stall(), times=12)
    (fourth,) = story.lifecycle.incidents
    assert fourth.id != third
    assert (fourth.recurring.earlier, fourth.recurring.told) == (third, True)
    story.look(stall(), times=14)
    assert not story.lifecycle.incidents[0].recurring.told


def test_a_long_one_is_told_again_after_five_minutes():
    """However long those before were: three outages of ten minutes do not hide a fourth."""
    story = episodes(Story(step=15.0), 3, ill=40, well=20)
    story.look(stall(), times=20)
    assert story.lifecycle.incidents[0].recurring.told
    story.look(stall(), times=2)
    assert not story.lifecycle.incidents[0].recurring.told


def test_another_cause_is_no_more_of_the_same():
    """It is told, though the kind is the same."""
    story = episodes(Story(), 3).look(verdict("engine_stalled", cause="rank_wait"))
    (other,) = story.lifecycle.incidents
    assert (other.recurring.times, other.recurring.told) == (4, False)


def test_a_page_is_no_more_of_what_was_told_as_a_ticket():
    """Tickets that recur wake nobody: the first of them that is a page does, also if it becomes one while it lasts."""
    story = Story()
    for _ in range(3):
        story.look(stall(severity="ticket"), times=12).look(stall("clear"), times=84)
    story.look(stall(severity="ticket"), times=2)
    assert story.lifecycle.incidents[0].recurring.told
    story.look(stall())
    assert not story.lifecycle.incidents[0].recurring.told
    page = story.lifecycle.incidents[0].id
    story.look(stall("clear"), times=84).look(stall())
    assert story.lifecycle.incidents[0].recurring.earlier == page


def test_what_recurs_is_forgotten_after_an_hour():
    story = episodes(Story(), 3).look(stall("clear"), times=720).look(stall())
    assert story.lifecycle.incidents[0].recurring is None


def test_flickering_is_one_time():
    """Trouble that is gone for less than ten seconds has not come back."""
    story = Story()
    for _ in range(6):
        story.look(stall(), times=3).look(stall("clear"))
    assert story.lifecycle.incidents[0].recurring is None


def test_what_recurs_outlives_the_watcher():
    story = episodes(Story(), 3)
    third = story.events[-1]["id"]
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("engine_stalled",))
    story.lifecycle = again
    story.look(stall())
    assert again.incidents[0].recurring.earlier == third
