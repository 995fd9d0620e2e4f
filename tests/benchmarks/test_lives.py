"""Healthy lives are what they are called, and observers see them as watchers do."""

from itertools import pairwise
from random import Random

import pytest

from benchmarks.lab.lives import LIVES
from benchmarks.lab.observer import Observer, look


def seen(slug, observer=None, duration_s=900.0, seed=2):
    return list(look(LIVES[slug].build(seed), observer or Observer(), Random(seed), duration_s))


@pytest.mark.parametrize("slug", LIVES)
def test_a_life_can_be_lived_again(slug):
    """Two tellings with one seed are equal, and its engine has work in them."""
    told = seen(slug, duration_s=300.0)
    assert told == seen(slug, duration_s=300.0)
    assert any(each.requests_running for look_ in told for each in look_.reading.engines)


def test_a_planned_restart_is_drained_first():
    """At the last scrapes before its port closes nothing runs."""
    looks = seen("planned_restarts", duration_s=4 * 3600.0)
    refused = [number for number, each in enumerate(looks) if each.scrape.outcome == "refused"]
    assert refused
    for each in looks[refused[0] - 6 : refused[0]]:
        assert each.reading.engines[0].requests_running == 0


def times(looks):
    return [(b.t - a.t, b.monotonic_s - a.monotonic_s) for a, b in pairwise(looks)]


def test_clocks_step_and_stand():
    """A step moves Unix time only; a suspend moves all but the monotonic clock; a gap moves both."""
    steps = times(seen("rare", Observer(steps_apart_s=100.0), 3000.0))
    assert any(abs(unix - mono) > 1 for unix, mono in steps)
    assert all(mono == pytest.approx(5) for _, mono in steps)

    suspends = times(seen("rare", Observer(suspends_apart_s=300.0), 9000.0))
    assert any(unix > 20 for unix, _ in suspends)
    assert all(mono == pytest.approx(5) for _, mono in suspends)

    gaps = times(seen("rare", Observer(gaps_apart_s=300.0), 9000.0))
    assert any(mono > 20 for _, mono in gaps)
    assert all(unix == pytest.approx(mono) for unix, mono in gaps)


def test_jitter_and_misses():
    """Intervals vary about what they are meant to be, and some looks meet no answer."""
    looks = seen("rare", Observer(jitter_ratio=0.3, misses_ratio=0.1), 5000.0)
    intervals = [mono for _, mono in times(looks)]
    assert 4.2 < min(intervals) < 4.5
    assert 5.5 < max(intervals) < 5.8
    missed = sum(each.reading is None for each in looks) / len(looks)
    assert 0.07 < missed < 0.13
