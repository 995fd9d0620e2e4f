"""What a step takes is learnt from what steps took."""

from itertools import product

import pytest

from vllm_watch.signals.scales import KEPT_MAX
from vllm_watch.signals.step_model import SCATTER_FIRST, SCATTER_MIN, SeenLoads, StepModel

LOADS = list(product((20.0, 60.0, 300.0, 900.0), (0.1, 0.3, 0.5)))


def took(tokens, kv, slow=1.0):
    return slow * (0.010 + 0.00005 * tokens + 0.020 * kv)


def learnt(turns=10, noise=(1.0,)):
    model = StepModel()
    for turn, (tokens, kv) in enumerate(LOADS * turns):
        model.learn(took(tokens, kv, noise[turn % len(noise)]), tokens, kv, 5.0)
    return model


def test_it_foretells_loads_it_never_met():
    """Beyond what was seen, with little doubt where the parts are known."""
    model = learnt()
    assert model.seconds_of(4000.0, 1.0) == pytest.approx(took(4000.0, 1.0), rel=0.02)
    assert model.deviation(4000.0, 1.0) < 2 * SCATTER_MIN


def met(*loads, times=2):
    seen = SeenLoads()
    for _ in range(times):
        for load in loads:
            seen.learn(*load)
    return seen


SMALL = (0.02, 10.0, 0.1)  # seconds, tokens per step, share of the cache in use
HIGH = (0.05, 100.0, 0.8)

LIMITS = {
    "the same load": ((10.0, 0.1), 0.02),
    "twice the tokens, three times the cache": (
        (20.0, 0.3),
        0.05,
    ),  # the high load had more of both
    "few with nearly all of the cache": ((5.0, 0.9), 0.05 * 0.9 / 0.8),
    "more than ever of both": ((200.0, 1.0), 0.10),
}


@pytest.mark.parametrize(("load", "limit"), LIMITS.values(), ids=LIMITS)
def test_each_load_that_was_met_limits_the_others(load, limit):
    """No part of a step grows faster than what causes it; the tightest limit counts."""
    assert met(SMALL, HIGH).longest_seconds(*load) == pytest.approx(limit)


def test_any_engine_whose_steps_are_a_sum_keeps_the_limit():
    """a + b · tokens + c · usage, whatever the three are."""
    for a, b, c in ((0.02, 0.0, 0.0), (0.0, 1e-3, 0.0), (0.0, 0.0, 0.1), (0.01, 1e-4, 0.05)):
        loads = [(a + b * t + c * u, t, u) for t, u in ((5.0, 0.05), (40.0, 0.2), (80.0, 0.6))]
        for tokens, usage in ((1.0, 0.95), (400.0, 0.1), (60.0, 0.9)):
            limit = met(*loads).longest_seconds(tokens, usage)
            assert limit >= a + b * tokens + c * usage - 1e-12


def test_nothing_is_foretold_from_nothing():
    model = StepModel()
    assert model.seconds_of(10.0, 0.1) is None
    assert model.deviation(10.0, 0.1) == SCATTER_FIRST
    assert not model.ready


def test_loads_that_are_nearly_the_same_are_one_and_their_number_is_bounded():
    """A thousand different loads are kept as 64; those that came first stay."""
    alike = met(SMALL, (0.03, 10.5, 0.105))
    assert alike.longest_seconds(9.0, 0.1) == pytest.approx(0.025)
    many = met(*((0.02, 10.0 * 1.6**n, 0.1) for n in range(KEPT_MAX)), (9.0, 1.0, 0.9))
    assert many.longest_seconds(10.0, 0.1) == pytest.approx(0.02)
    assert many.longest_seconds(1.0, 0.9) == pytest.approx(0.18)
