"""What gets done now, by what got done when the engine was well."""

import pytest

from vllm_watch.signals.blocks import Block
from vllm_watch.signals.throughput import Throughput


def block(generated=100.0, prompted=400.0, **fields):
    known = {
        "at_s": 0.0, "seconds": 10.0, "steps": 100.0, "step_seconds": 0.1,
        "tokens_per_step": 50.0, "kv_usage": 0.5, "running": 10.0, "waiting": 0.0,
        "waiting_min": 0.0, "running_min": 10.0, "generated": generated, "prompted": prompted,
        "finished": 20.0, "finished_tokens": 5000.0, "preempted": 0.0,
    }  # fmt: skip
    return Block(**{**known, **fields})


def well():
    throughput = Throughput()
    for _ in range(10):
        throughput.see(block())
        throughput.learn(block())
    return throughput


RATIOS = {
    "as ever": (block(), 1.0),
    "half of both": (block(50.0, 200.0), 0.5),
    "longer prompts: less generated, more computed": (block(50.0, 800.0), 2.0),
    "longer outputs": (block(120.0, 40.0), 1.2),
    "nothing": (block(0.0, 0.0), 0.0),
    "prompt tokens are not said": (block(70.0, None), 0.7),
}


@pytest.mark.parametrize(("now", "ratio"), RATIOS.values(), ids=RATIOS)
def test_the_better_of_the_two_kinds_of_work_counts(now, ratio):
    throughput = well()
    for _ in range(20):
        throughput.see(now)
    assert throughput.ratio() == pytest.approx(ratio, abs=0.01)


def test_how_many_ran_at_equal_usage():
    assert well().running_expected(1.0) == pytest.approx(20.0)


def test_how_long_requests_were():
    assert well().request_tokens() == pytest.approx(250.0)


def test_nothing_is_known_of_an_engine_that_was_not_seen_at_work():
    """Idle blocks, no usage, no lengths."""
    fresh = Throughput()
    assert fresh.ratio() is None
    assert fresh.running_expected(0.5) is None
    assert fresh.request_tokens() is None
    for _ in range(10):
        fresh.learn(block(0.0, 0.0, running=0.0))
    assert not fresh.ready
    for _ in range(10):
        fresh.learn(block(kv_usage=None, finished=None))
    assert fresh.ready
    assert fresh.ratio() is None
    assert fresh.running_expected(0.5) is None
    assert fresh.request_tokens() is None


def test_an_engine_that_only_embeds_is_compared_by_its_prompts():
    """It never generates."""
    throughput = Throughput()
    for _ in range(10):
        throughput.see(block(0.0, 400.0))
        throughput.learn(block(0.0, 400.0))
    assert throughput.ratio() == pytest.approx(1.0)
