"""What a step takes is learnt from what steps took."""

from itertools import product

import pytest

from vllm_watch.signals.step_model import READY_BLOCKS, SCATTER_FIRST, SCATTER_MIN, StepModel

LOADS = list(product((20.0, 60.0, 300.0, 900.0), (0.1, 0.3, 0.5)))


def took(tokens, kv, slow=1.0):
    return slow * (0.010 + 0.00005 * tokens + 0.020 * kv)


def learnt(turns=10, noise=(1.0,)):
    model = StepModel()
    for turn, (tokens, kv) in enumerate(LOADS * turns):
        model.learn(took(tokens, kv, noise[turn % len(noise)]), tokens, kv, 5.0)
    return model


def test_it_finds_the_three_parts():
    assert learnt().coefficients == pytest.approx((0.010, 0.00005, 0.020), rel=0.02)


def test_it_foretells_loads_it_never_met():
    """Beyond what was seen, with little doubt where the parts are known."""
    model = learnt()
    assert model.seconds_of(4000.0, 1.0) == pytest.approx(took(4000.0, 1.0), rel=0.02)
    assert model.deviation(4000.0, 1.0) < 2 * SCATTER_MIN


def test_what_was_never_varied_is_not_known():
    """One load only: at another, the doubt is large, and it is learnt at once."""
    model = StepModel()
    for _ in range(100):
        model.learn(took(60.0, 0.1), 60.0, 0.1, 5.0)
    assert model.deviation(60.0, 0.1) < 1.1 * SCATTER_MIN
    assert model.deviation(60.0, 0.9) > 5 * SCATTER_MIN
    for _ in range(10):
        model.learn(took(60.0, 0.9), 60.0, 0.9, 5.0)
    assert model.seconds_of(60.0, 0.9) == pytest.approx(took(60.0, 0.9), rel=0.05)
    assert model.deviation(60.0, 0.9) < 2 * SCATTER_MIN


def test_no_part_is_below_zero():
    """Steps that get shorter with the cache in use (others hold it) cost nothing to read, not less."""
    model = StepModel()
    for tokens, kv in LOADS * 5:
        model.learn(0.020 + 0.00005 * tokens - 0.010 * kv, tokens, kv, 5.0)
    assert min(model.coefficients) == 0.0


@pytest.mark.parametrize(
    ("noise", "least", "most"), [((1.0,), 0.05, 0.05), ((0.7, 1.4), 0.25, 0.5)]
)
def test_the_scatter_is_what_was_seen(noise, least, most):
    assert least <= learnt(50, noise).scatter <= most


def test_excursions_that_healed_widen_the_scatter():
    model = learnt()
    before = model.scatter
    model.widen([1.5] * 10)
    assert model.scatter > before


def test_nothing_is_foretold_from_nothing():
    model = StepModel()
    assert model.seconds_of(10.0, 0.1) is None
    assert model.deviation(10.0, 0.1) == SCATTER_FIRST
    assert not model.ready


def test_it_is_ready_after_a_dozen_blocks_and_40_seconds():
    model = StepModel()
    for block in range(READY_BLOCKS):
        assert not model.ready
        model.learn(0.02, 10.0 + block, 0.1, 5.0)
    assert model.ready
    hasty = StepModel()
    for _ in range(READY_BLOCKS):
        hasty.learn(0.02, 10.0, 0.1, 1.0)
    assert not hasty.ready
