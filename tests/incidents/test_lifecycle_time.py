"""How long trouble must be away, what is carried over a gap, and what holds of any story."""

import json
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from tests.incidents.test_lifecycle import (
    MOMENT,
    SILENT,
    Story,
    T,
    collapse,
    down,
    gpu_fault,
    overload,
    stall,
    verdict,
)
from vllm_watch.incidents import relations
from vllm_watch.incidents.incident import ACTIVE, RECOVERING
from vllm_watch.incidents.lifecycle import Lifecycle
from vllm_watch.samples.engine import EngineSample
from vllm_watch.signals import stored

CLEAR = stall("clear")


def end(story):
    """Seconds from the first look without it to its end."""
    times = {event: second for second, event, *_ in story.told}
    return times["resolved"] - times["recovering"]


def opened(story):
    return [each["kind"] for each in story.events if each["event"] == "opened"]


@pytest.mark.parametrize(
    ("step", "seconds"), [(5, 30), (15, 45), (30, 90), (60, 180), (100, 300), (240, 240)]
)
def test_three_usual_looks_must_be_quiet_but_four_minutes_are_enough(step, seconds):
    assert end(Story(float(step)).look(stall(), times=4).look(CLEAR, times=20)) == seconds


def test_one_late_look_makes_no_slow_scrape():
    """Its minute counts for an eighth of what is usual."""
    story = Story().look(stall(), times=20)
    story.now += 55.0
    assert end(story.look(CLEAR, times=20)) == 30


def test_an_interval_that_is_longer_for_good_becomes_the_usual_one():
    """After ten minutes at one look a minute, three of them are asked for."""
    story = Story().look(stall(), times=20)
    story.step = 60.0
    assert end(story.look(stall(), times=8).look(CLEAR, times=20)) == 180


def test_an_incident_that_recovers_says_when_it_will_be_over():
    """A look that knows nothing puts it off by as much."""
    story = Story().look(stall(), times=10).look(CLEAR)
    assert story.lifecycle.incidents[0].closes_t == T + 80
    story.look(CLEAR).look(stall("unknown"), times=2).look(CLEAR)
    assert story.lifecycle.incidents[0].closes_t == T + 90
    assert story.look(CLEAR, times=20).told[-1][0] == 90


def test_a_pause_that_was_over_meanwhile_begins_anew():
    """Two of twenty seconds within a collapse are not one of forty."""
    story = Story().look(collapse())
    for _ in range(3):
        story.look(collapse(), stall(), times=5).look(collapse(), CLEAR)
    assert opened(story) == ["throughput_collapse"]
    story.look(collapse(), stall(), times=7)
    assert opened(story)[1:] == ["engine_stalled"]


def counted(failed, restarts=0):
    """A look at an engine with two requests in flight that has failed so many."""
    sample = EngineSample(
        engine="0", requests_running=2.0, requests_waiting=0.0,
        request_success={"stop": 0.0, "abort": 0.0, "error": float(failed)},
    )  # fmt: skip
    return replace(MOMENT, samples=(sample,), restarts={"0": restarts})


def test_what_an_incident_cost_is_counted_from_its_beginning():
    """What failed meanwhile is not taken for usual, nor forgotten as it recovers; the next one begins at none."""
    story = Story().look(times=20, moment=counted(0))
    for number in range(10):
        story.look(stall(), moment=counted(2 * number))
    assert story.lifecycle.incidents[0].requests_lost == 18
    story.look(CLEAR, times=7, moment=counted(18))
    assert (story.events[-1]["event"], story.events[-1]["requests_lost"]) == ("resolved", 18)
    story.look(collapse(), times=2, moment=counted(18))
    assert story.lifecycle.incidents[0].requests_lost == 0


@pytest.mark.parametrize(("since_seconds", "lost"), [(20.0, True), (10.0, False)])
def test_what_began_before_it_was_told_cost_what_was_lost_since(since_seconds, lost):
    """The look that tells it counts from when the detector saw it begin."""
    story = Story().look(times=20, moment=counted(0)).look(times=3, moment=counted(40))
    story.look(stall(since_seconds=since_seconds), moment=counted(40))
    assert (story.lifecycle.incidents[0].requests_lost > 30) is lost


def test_of_kinds_that_are_judged_no_more_nothing_is_gone_on_with():
    """Another run of the watcher has that detector switched off; how many were opened stays known."""
    story = Story().look(stall(), gpu_fault())
    again = Lifecycle("x")
    again.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("gpu_fault",))
    assert [each.kind for each in again.incidents] == ["gpu_fault"]
    assert again.opened == {"engine_stalled": 1, "gpu_fault": 1}


KINDS = (stall, collapse, overload, down, gpu_fault)


def told_at_random(random, looks=120):
    """A story in which each finding stays as it is for some looks."""
    story, states = Story(), ["clear"] * len(KINDS)
    for _ in range(looks):
        for number in range(len(KINDS)):
            if random.random() < 0.08:
                states[number] = random.choice(("firing", "clear", "clear", "unknown"))
        moment = SILENT if states[3] == "firing" else MOMENT
        story.look(*(kind(state) for kind, state in zip(KINDS, states, strict=True)), moment=moment)
        yield story, states


@pytest.mark.parametrize("seed", range(6))
def test_what_holds_at_every_look(seed):
    """One incident of a kind, opened on what is found now; none hides behind one that only recovers."""
    for story, states in told_at_random(Random(seed)):
        now_t = T + story.now - story.step
        open_ = story.lifecycle.incidents
        found = {kind().kind for kind, state in zip(KINDS, states, strict=True) if state == "firing"}  # fmt: skip
        assert len({each.key for each in open_}) == len(open_)
        assert [each.opened_t for each in open_] == sorted(each.opened_t for each in open_)
        for each in open_:
            assert each.firing is (each.kind in found)
            assert (each.closes_t is None) is (each.phase == ACTIVE)
            assert each.opened_t < now_t or each.kind in found
        active = [each for each in open_ if each.phase == ACTIVE]
        for each in (each for each in open_ if each.phase == RECOVERING):
            assert each.closes_t >= now_t
            assert not any(relations.covers(each, other.kind, other.engine) for other in active)
        assert story.lifecycle.opened.get("engine_stalled", 0) == len(
            {e["id"] for e in story.events if e["kind"] == "engine_stalled"}
        )


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_all_there_is(seed):
    """At any look another run of the watcher knows what this one does."""
    for number, (story, _) in enumerate(told_at_random(Random(100 + seed))):
        if number % 10 == 0:
            kept = json.loads(json.dumps(story.lifecycle.export_state()))
            again = Lifecycle("x")
            again.restore(kept, [kind().kind for kind in KINDS])
            assert json.loads(json.dumps(again.export_state())) == kept
            assert again.incidents == story.lifecycle.incidents


def test_trouble_that_flickers_lasts_on():
    """A look without it in between makes the third time no shorter: it is told again as it lasts as long as those before."""
    story = Story()
    for _ in range(2):
        story.look(stall(), times=12).look(CLEAR, times=84)
    story.look(stall(), times=3).look(CLEAR).look(stall(), times=22)
    (third,) = story.lifecycle.incidents
    assert (third.recurring.times, third.recurring.told) == (3, False)


def test_where_its_processes_stand_is_said_of_the_incident_that_was_asked_about():
    """Another one that is open learns nothing of it."""
    story = Story().look(stall(), gpu_fault())
    (name,) = (each.id for each in story.lifecycle.incidents if each.kind == "engine_stalled")
    story.lifecycle.note_stacks(name, "They wait in a collective.")
    assert {each.kind: each.stacks for each in story.lifecycle.incidents} == {
        "engine_stalled": "They wait in a collective.", "gpu_fault": "",
    }  # fmt: skip


TWO = {"0": 0, "1": 0}
LIVES = {  # what is found, the counters then and as it is well again → how it ended
    "an engine whose counters were not read": (stall, {}, TWO, "healthy"),
    "an engine beside one that began anew": (stall, TWO, {"0": 0, "1": 1}, "healthy"),
    "an engine that began anew": (stall, TWO, {"0": 1, "1": 0}, "restarted"),
    "a server": (down, TWO, TWO, "healthy"),
    "a server of which an engine began anew": (down, TWO, {"0": 0, "1": 1}, "restarted"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "then", "now", "resolution"), LIVES.values(), ids=LIVES)
def test_whose_counters_tell_of_a_restart(kind, then, now, resolution):
    """Those of its engine, or of any where it is the whole server's."""
    story = Story().look(kind(), moment=replace(MOMENT, restarts=then))
    story.look(kind("clear"), times=9, moment=replace(MOMENT, restarts=now))
    assert story.told[-1][-1] == resolution


def test_what_was_kept_in_another_form_is_left_out():
    """It is damage to whoever reads it, and changes nothing of what is known."""
    kept = Story().look(stall()).lifecycle.export_state()
    story = Story().look(gpu_fault())
    with pytest.raises(stored.DAMAGE):
        story.lifecycle.restore(kept | {"version": kept["version"] - 1}, ("engine_stalled",))
    assert [each.kind for each in story.lifecycle.incidents] == ["gpu_fault"]


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
