"""Healthy lives are what they are called, and observers see them as watchers do."""

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
