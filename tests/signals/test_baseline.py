"""What an engine was when fresh is learnt while it is well, and kept while it is not."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Engine
from vllm_watch.signals.baseline import Baseline

FRESH = {"running": 40.0, "kv": 0.3}


def follow(baseline, engine, seconds, lacks=(), adapters="", **load):
    comparison = None
    info = {"max_lora": "8", "running_lora_adapters": adapters, "waiting_lora_adapters": ""}
    for _ in range(int(seconds / 5)):
        sample = replace(engine.run(5.0, **load), lora_requests_info=info, **dict.fromkeys(lacks))
        comparison = baseline.update(engine.at_s, sample, known=True) or comparison
    return comparison


@pytest.fixture
def known():
    baseline, engine = Baseline(), Engine()
    return baseline, engine, follow(baseline, engine, 600, **FRESH)


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


def test_excursions_that_heal_are_tolerated_more_than_before(known):
    """A slow look every 20 s, for ten minutes; a loss that stays teaches nothing until it has healed."""
    baseline, engine, before = known
    for _ in range(30):
        follow(baseline, engine, 5, **FRESH, slow=2.5)
        after = follow(baseline, engine, 15, **FRESH)
        assert not after.slow
    assert after.deviation <= before.deviation
    after = follow(baseline, engine, 120, **FRESH)
    assert after.deviation > before.deviation


def test_a_restart_and_another_configuration_begin_anew(known):
    baseline, engine, _ = known
    follow(baseline, Engine(at_s=engine.at_s), 5, **FRESH)
    assert baseline.model.blocks == 0
    other = Engine(config={"num_gpu_blocks": "7"})
    follow(baseline, other, 300, **FRESH)
    follow(baseline, Engine(config={}), 5, **FRESH)
    assert baseline.model.blocks == 0


def former_of(baseline):
    (model,) = baseline.former.models.values()
    return model


def test_a_process_that_lived_for_minutes_is_not_the_one_to_compare_with(known):
    """It has met few loads. One that worked for a quarter of an hour is, and so is the first that there was."""
    baseline, engine, _ = known
    first = baseline.model
    engine = Engine(at_s=engine.at_s)
    follow(baseline, engine, 300, **FRESH)
    assert former_of(baseline) is first
    engine = Engine(at_s=engine.at_s)
    follow(baseline, engine, 1200, **FRESH)
    assert (former_of(baseline), baseline.former.ended) == (first, 2)
    third = baseline.model
    engine = Engine(at_s=engine.at_s)
    follow(baseline, engine, 300, **FRESH)
    assert former_of(baseline) is third
    other = Baseline()
    other.restore(baseline.export_state(), 5.0)
    assert former_of(other).blocks == third.blocks


LOAD_UNTOLD = {
    "longer contexts, and the usage is not seen": ({"running": 40.0, "kv": 0.9}, "kv_cache_usage"),
    "longer prompts, and their tokens are not seen": (
        {"running": 40.0, "kv": 0.3, "prompt": 4000.0}, "prompt_tokens",
    ),
    "many requests, and their number is not seen": ({"running": 99.0, "kv": 0.3}, "requests_running"),
}  # fmt: skip


@pytest.mark.parametrize(("load", "field"), LOAD_UNTOLD.values(), ids=LOAD_UNTOLD)
def test_a_load_that_is_seen_in_part_is_not_compared_and_teaches_nothing(known, load, field):
    """It looks lighter than it is."""
    baseline, engine, before = known
    blocks = baseline.model.blocks
    assert follow(baseline, engine, 600, lacks={field}, **load) is None
    assert baseline.comparison is None
    assert baseline.model.blocks == blocks
    again = follow(baseline, engine, 20, **FRESH)
    assert again.slow_log_ratio == pytest.approx(before.slow_log_ratio, abs=0.1)


OTHERWISE = {"iteration_tokens", "prefix_cache_queries"}


def test_steps_that_are_told_otherwise_are_judged_by_their_like(known):
    """What was learnt before stays for better days."""
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    first = follow(baseline, engine, 20, lacks=OTHERWISE, **FRESH)
    assert (first.slow_log_ratio, first.slow_now) == (None, False)
    later = follow(baseline, engine, 120, lacks=OTHERWISE, **FRESH)
    assert later.slow_log_ratio == pytest.approx(0.0, abs=0.1)
    again = follow(baseline, engine, 20, **FRESH)
    assert baseline.model.blocks > blocks
    assert again.slow_log_ratio == pytest.approx(0.0, abs=0.1)


UNSEEN = {
    "slow": ({**FRESH, "slow": 2.0}, "iteration_tokens"),
    "starved": ({"running": 3.0, "kv": 0.9, "waiting": 9.0}, "requests_waiting"),
}


@pytest.mark.parametrize(
    ("alarm", "load", "field"), [(name, *each) for name, each in UNSEEN.items()]
)
def test_an_alarm_whose_signals_are_gone_holds_unseen(known, alarm, load, field):
    """Until they are back, and tell of health."""
    baseline, engine, _ = known
    assert getattr(follow(baseline, engine, 60, **load), alarm)
    blind = follow(baseline, engine, 600, lacks={field}, **FRESH)
    assert (getattr(blind, alarm), blind.unseen) == (True, True)
    well = follow(baseline, engine, 120, **FRESH)
    assert (getattr(well, alarm), well.unseen) == (False, False)


def test_a_configuration_that_is_not_told_is_no_other_one(known):
    """Nothing is forgotten for it, nor when it is told again."""
    baseline, engine, _ = known
    blocks = baseline.model.blocks
    follow(baseline, engine, 60, lacks={"cache_config_info", "model_name"}, **FRESH)
    follow(baseline, engine, 60, **FRESH)
    assert baseline.model.blocks > blocks
    engine.config = {"num_gpu_blocks": "7"}
    follow(baseline, engine, 5, **FRESH)
    assert baseline.model.blocks == 0


def test_steps_with_drafts_are_compared_with_their_like(known):
    """A drafter at work makes each step longer; when it is switched on or off, nothing has become slow."""
    baseline, engine, _ = known
    for _ in range(4):
        on = follow(baseline, engine, 300, **FRESH, drafts=3.0, slow=1.7)
        assert (on.slow, on.slow_now) == (False, False)
        off = follow(baseline, engine, 300, **FRESH)
        assert (off.slow, off.slow_now) == (False, False)
    assert follow(baseline, engine, 60, **FRESH, drafts=3.0, slow=3.4).slow


def test_steps_with_adapters_are_compared_with_their_like(known):
    """Bursts over many LoRA adapters make each step longer; nothing has become slow."""
    baseline, engine, _ = known
    many = ",".join(f"a{number}" for number in range(6))
    for _ in range(4):
        on = follow(baseline, engine, 300, **FRESH, adapters=many, slow=1.6)
        assert (on.slow, on.slow_now) == (False, False)
        assert not follow(baseline, engine, 300, **FRESH, adapters="a0").slow
    assert follow(baseline, engine, 60, **FRESH, adapters=many, slow=3.2).slow
    other = Baseline()
    other.restore(baseline.export_state(), 5.0)
    assert other.export_state()["lacks"] == baseline.export_state()["lacks"]
