"""How long trouble must be away, what is carried over a gap, and what holds of any story."""

import json
from dataclasses import replace
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
    ("step", "seconds"), [(5, 30), (15, 45), (30, 90), (60, 180), (100, 200), (240, 240)]
)
def test_three_usual_looks_must_be_quiet_but_three_minutes_are_enough(step, seconds):
    assert end(Story(float(step)).look(stall(), times=4).look(CLEAR, times=20)) == seconds


def test_one_late_look_makes_no_slow_scrape():
    """Its minute counts for an eighth of what is usual."""
    story = Story().look(stall(), times=20)
    story.now += 55.0
    assert end(story.look(CLEAR, times=20)) == 30


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


def test_the_first_interval_is_the_usual_one():
    """What a single look has to wait for is three of it, and not of what was never seen."""
    story = Story(30.0).look(stall()).look(CLEAR)
    assert story.lifecycle.incidents[0].closes_t == T + 30 + 3 * 30


def test_an_eighth_of_a_change_of_pace_counts():
    """Looks every ten seconds, then one after a hundred."""
    story = Story(10.0).look(times=3).look(stall())
    story.now += 90.0
    story.look(CLEAR)
    assert story.lifecycle.incidents[0].closes_t == T + 130 + 3 * (10 + 90 / 8)


def test_an_aftermath_is_counted_from_when_the_trouble_was_seen_last():
    """A stall of five minutes: its queue has as long to drain as that of a short one."""
    story = Story().look(stall(), times=60).look(CLEAR, overload(), times=60)
    opened_s = [second for second, event, kind, *_ in story.told if (event, kind) == ("opened", "overload")]  # fmt: skip
    assert opened_s == [295 + 150]


def test_an_engine_that_is_back_begins_anew():
    """What was found before it went says nothing of how long a pause within its collapse lasts."""
    story = Story().look(stall()).look(times=9, moment=replace(MOMENT, restarts={"1": 0}))
    story.look(collapse()).look(collapse(), stall(), times=4).look(collapse())
    assert opened(story) == ["engine_stalled", "throughput_collapse"]


def test_trouble_that_flickers_lasts_on():
    """A look without it in between makes the third time no shorter: it is told again as it lasts as long as those before."""
    story = Story()
    for _ in range(2):
        story.look(stall(), times=12).look(CLEAR, times=84)
    story.look(stall(), times=3).look(CLEAR).look(stall(), times=22)
    (third,) = story.lifecycle.incidents
    assert (third.recurring.times, third.recurring.told) == (3, False)


def test_what_recurs_lasts_until_it_is_not_found_any_more():
    """The quiet time before its end is none of it, and the word that it recovers says so."""
    story = Story()
    for _ in range(3):
        story.look(stall(), times=12).look(CLEAR, times=84)
    recovers, over = story.events[-2:]
    assert (recovers["phase"], recovers["recurring"]["ill_seconds"]) == ("recovering", 180)
    assert over["recurring"]["ill_seconds"] == 180


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


def test_what_an_incident_cost_is_counted_on_by_the_next_run():
    """As if there had been one run."""
    story = Story().look(times=20, moment=counted(0)).look(stall(), moment=counted(0))
    again = Story()
    again.now = story.now
    again.lifecycle.restore(json.loads(json.dumps(story.lifecycle.export_state())), ("engine_stalled",))  # fmt: skip
    for each in (story, again):
        each.look(stall(), times=2, moment=counted(40))
    assert story.lifecycle.incidents[0].requests_lost == 40
    assert again.lifecycle.incidents[0].requests_lost == 40


def test_what_was_kept_in_another_form_is_left_out():
    """It is damage to whoever reads it, and changes nothing of what is known."""
    kept = Story().look(stall()).lifecycle.export_state()
    story = Story().look(gpu_fault())
    with pytest.raises(stored.DAMAGE):
        story.lifecycle.restore(kept | {"version": kept["version"] - 1}, ("engine_stalled",))
    assert [each.kind for each in story.lifecycle.incidents] == ["gpu_fault"]
