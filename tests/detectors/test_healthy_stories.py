"""Healthy life and planned ends wake nobody; what goes wrong in the midst of it is found, and is over when it is."""

from random import Random

import pytest

from benchmarks.lab.lives import LIVES
from benchmarks.lab.observer import Observer, look
from tests.detectors.test_stories import FOUND_WITHIN, Told, of, pages
from tests.told import said
from vllm_watch.watch.host_watch import SiteWatch

UPDATES = {
    # story → intervals at which an observer can know
    "rolling_update": (1.0, 5.0, 15.0),
    "sigterm_update": (1.0, 5.0, 15.0),
    "shutdown_timeout_update": (1.0,),  # over in seconds, for its requests are short
}


@pytest.mark.parametrize(
    ("story", "interval_s"), [(story, each) for story, all_ in UPDATES.items() for each in all_]
)
def test_a_planned_end_is_no_incident_and_a_hang_after_it_is_one(story, interval_s):
    """Drained, told to end with requests in flight, or draining by itself: nothing is opened."""
    told = Told(story, interval_s)
    told.until(420)
    assert told.events == []

    told.until_work()
    told.hang()
    events = told.until(told.t + 60 + FOUND_WITHIN[interval_s])
    assert [each["cause"] for each in of(events, kind="engine_stalled")] == ["hang"]
    assert len({each["id"] for each in pages(events)}) == 1


@pytest.mark.parametrize("process_seen", [False, True])
@pytest.mark.parametrize("interval_s", FOUND_WITHIN)
def test_a_crash_under_load_pages_at_once_and_ends_as_a_restart(interval_s, process_seen):
    """Also where its supervisor has started another process before anybody could look, which loads."""
    told = Told("healthy", interval_s)
    vllm = told.scene["vllm"]
    vllm.process_seen = process_seen
    told.until(300)
    while vllm.outstanding < 3:
        told.until(told.t + 0.1)
    vllm.stop()
    vllm.start(load_seconds=600.0)

    opened = of(told.until(told.t + FOUND_WITHIN[interval_s]))
    assert [(e["kind"], e["cause"], e["severity"]) for e in opened] == [
        ("engine_down", "crash", "page")
    ]
    assert told.watches["vllm"].signals.state == "starting"  # the GPUs, too, show what loads
    told.until(told.t + 800)
    assert [e["resolution"] for e in of(told.events, event="resolved")] == ["restarted"]
    assert of(told.events, cause="crash_loop") == []


QUIET = {
    "hot": Observer(interval_s=5.0, jitter_ratio=0.3, begins_s=600.0),
    "bursty": Observer(interval_s=15.0, jitter_ratio=0.1, misses_ratio=0.005),
    "long_context": Observer(interval_s=5.0, steps_apart_s=300.0, monotonic=False),
    "prefix_heavy": Observer(interval_s=10.0, gaps_apart_s=600.0),
    "speculative": Observer(interval_s=2.0, suspends_apart_s=600.0),
}


@pytest.mark.parametrize("slug", QUIET)
def test_half_an_hour_of_healthy_life_wakes_nobody(slug):
    """A handful of the lives that `make soak-healthy` lets run for days."""
    observer, watch, events = QUIET[slug], SiteWatch(), []
    for seen in look(LIVES[slug].build(3), observer, Random(3), 1800.0):
        events += said(watch.look(seen))
    assert pages(events) == []
    assert not any(each["restart_advised"] for each in events)
    assert watch.failures == {}
