"""What gets done now, by what got done when the engine was well."""

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
