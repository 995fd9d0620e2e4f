"""How far step times wander by themselves, and what is more than that."""

import json
from math import exp, log, sqrt
from random import Random

import pytest

from vllm_watch.signals import stored
from vllm_watch.signals.wander import Wander

LOOK_S = 5.0


def wandering(sigma, minutes, hours, seed=1):
    """An engine whose step times wander: log ratios at each look, correlated over so many minutes."""
    rng, level, keep = Random(seed), 0.0, exp(-LOOK_S / (60.0 * minutes))
    for _ in range(int(hours * 3600.0 / LOOK_S)):
        level = keep * level + rng.gauss(0.0, sigma * sqrt(1.0 - keep * keep))
        yield level


def quiet(minutes=30.0):
    wander = Wander()
    for _ in range(int(minutes * 60.0 / LOOK_S)):
        wander.add(0.0, LOOK_S, well=True)
    return wander


@pytest.mark.parametrize("hours", [0.2, 8.0])
def test_so_is_one_that_creeps_in(hours):
    """Up to three times as long: the quicker it comes, the sooner a lag sees it; else its level does."""
    wander, looks = quiet(150.0), int(hours * 3600.0 / LOOK_S)
    found = [
        exp(log(3.0) * look / looks)
        for look in range(looks)
        if wander.add(log(3.0) * look / looks, LOOK_S, well=False) or wander.exceeded(log(1.45))
    ]
    assert found[0] <= 2.0


@pytest.mark.parametrize(("sigma", "minutes"), [(0.3, 3.0), (0.3, 10.0), (0.5, 5.0), (0.5, 20.0)])
def test_what_wanders_is_no_change(sigma, minutes):
    """Once half an hour has shown how it wanders, hours of it exceed nothing."""
    wander, looks = Wander(), list(wandering(sigma, minutes, 12.0))
    begun = int(1800.0 / LOOK_S)
    for level in looks[:begun]:
        wander.add(level, LOOK_S, well=True)
    exceeded = 0
    for level in looks[begun:]:
        wander.add(level, LOOK_S, well=True)
        exceeded += wander.exceeded(log(1.45))
    assert exceeded == 0


@pytest.mark.parametrize("shape", ["wanders", "jumps", "creeps"])
def test_what_goes_up_and_down_on_its_way_is_no_change(shape):
    """An engine known for ten minutes is in doubt for eight; at its end steps take 2.7 times as long, each time."""
    path = {
        "wanders": [0.16, 0.11, 0.15, 0.33, 0.51, 0.51, 0.61, 0.84, 1.0],
        "jumps": [0.02, 0.0, 0.03, 0.01, 0.02, 0.0, 0.03, 1.0, 1.0],
        "creeps": [0.11, 0.22, 0.33, 0.44, 0.55, 0.66, 0.77, 0.88, 1.0],
    }[shape]
    wander = quiet(10.0)
    for level in path:
        for _ in range(12):
            wander.add(level, LOOK_S, well=False)
    assert wander.exceeded(log(1.7)) is (shape != "wanders")


def test_one_slowdown_that_was_cured_hides_no_other():
    """Six times as long for minutes, cured, and soon after again: it is told as soon as the first one."""
    wander = quiet()
    for _ in range(36):
        wander.add(log(6.0), LOOK_S, well=False)
    for _ in range(36):
        wander.add(0.0, LOOK_S, well=True)
    seconds = 0.0
    while not wander.exceeded(log(1.45)):
        wander.add(log(3.0), LOOK_S, well=False)
        seconds += LOOK_S
    assert seconds <= 60.0


def test_a_trouble_that_was_told_is_no_habit():
    """Slowdowns that were paged and cured teach nothing: the tenth is as odd as the first."""
    wander = Wander()
    for _ in range(10):
        for _ in range(240):
            wander.add(0.0, LOOK_S, well=True)
        usual = wander.a_minute, wander.stray
        for _ in range(60):
            wander.add(log(3.0), LOOK_S, well=False)
        assert wander.exceeded(log(1.7))
        wander.forget()
        wander.add(0.0, LOOK_S, well=True)
        assert (wander.a_minute, wander.stray) <= usual


def test_a_fault_that_comes_and_goes_hides_behind_no_unrest_of_its_own():
    """Four times as long for two minutes of three, in doubt all the time: each time is a change."""
    wander = quiet(10.0)
    for _ in range(6):
        for minute in range(2):
            for _ in range(12):
                wander.add(log(4.0), LOOK_S, well=False)
            assert wander.exceeded(log(1.7)) or minute
        for _ in range(12):
            wander.add(0.0, LOOK_S, well=False)


def test_it_goes_on_where_it_was():
    wander = quiet()
    for _ in range(20):
        wander.add(log(2.0), LOOK_S, well=False)
    kept = json.loads(json.dumps(wander.export_state()))
    other = Wander()
    other.restore(kept)
    assert other.export_state() == kept
    with pytest.raises(stored.DAMAGE):
        Wander().restore({**kept, "count": "many"})
