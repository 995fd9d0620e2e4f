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
