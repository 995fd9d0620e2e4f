"""What an engine was when fresh is learnt while it is well, and kept while it is not."""

import pytest

from tests.detectors.made_up_engine import Engine
from vllm_watch.signals.baseline import Baseline

FRESH = {"running": 40.0, "kv": 0.3}


def follow(baseline, engine, seconds, **load):
    comparison = None
    for _ in range(int(seconds / 5)):
        comparison = baseline.update(engine.at_s, engine.run(5.0, **load), known=True) or comparison
    return comparison


@pytest.fixture
def known():
    baseline, engine = Baseline(), Engine()
    return baseline, engine, follow(baseline, engine, 600, **FRESH)


def test_a_healthy_block_is_as_expected(known):
    comparison = known[2]
    assert comparison.known
    assert comparison.slow_log_ratio == pytest.approx(0.0, abs=0.03)
    assert comparison.throughput_ratio == pytest.approx(1.0, abs=0.03)
    assert comparison.running_expected == pytest.approx(comparison.block.running, rel=0.4)
    assert not any(
        [comparison.slow, comparison.slow_now, comparison.starved, comparison.starved_now]
    )


TAUGHT_NOTHING = {
    "slow": {**FRESH, "slow": 1.5},
    "drifting": {**FRESH, "slow": 1.15},
    "crowded: few run, pages are in use, others wait": {"running": 3.0, "kv": 0.9, "waiting": 9.0},
}


@pytest.mark.parametrize("load", TAUGHT_NOTHING.values(), ids=TAUGHT_NOTHING)
def test_what_is_in_doubt_teaches_nothing(known, load):
    """But for the few blocks until the doubt came."""
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    follow(baseline, engine, 600, **load)
    assert baseline.model.blocks - blocks <= 25


def test_a_load_that_was_never_met_is_learnt(known):
    """It becomes known, and is no drift."""
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    comparison = follow(baseline, engine, 600, running=200.0, kv=0.9)
    assert baseline.model.blocks - blocks >= 100
    assert not comparison.slow_now


def test_an_idle_engine_teaches_nothing_and_is_not_compared(known):
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    comparison = follow(baseline, engine, 600, running=0.0, kv=0.0)
    assert baseline.model.blocks == blocks
    assert comparison.slow_log_ratio is None
    assert comparison.throughput_ratio is None


def test_excursions_that_heal_are_tolerated_more_than_before(known):
    """A slow look every 20 s, for ten minutes."""
    baseline, engine, before = known
    for _ in range(30):
        follow(baseline, engine, 5, **FRESH, slow=2.5)
        after = follow(baseline, engine, 15, **FRESH)
    assert not after.slow
    assert after.tolerated_log_ratio > before.tolerated_log_ratio


def test_a_restart_and_another_configuration_begin_anew(known):
    baseline, engine, _ = known
    follow(baseline, Engine(at_s=engine.at_s), 5, **FRESH)
    assert baseline.model.blocks == 0
    other = Engine(config={"num_gpu_blocks": "7"})
    follow(baseline, other, 300, **FRESH)
    follow(baseline, Engine(config={}), 5, **FRESH)
    assert baseline.model.blocks == 0


def test_what_it_did_before_a_gap_of_unknown_length_stays_known(known):
    """Only the block across it is lost."""
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    assert baseline.update(engine.at_s, engine.run(5.0, **FRESH), known=False) is None
    assert baseline.model.blocks == blocks
    assert baseline.update(engine.at_s + 5, engine.run(5.0, **FRESH), known=True) is not None
