"""An engine that was slow from the first look, at a load that none of its siblings has met."""

import pytest

from tests.detectors.made_up_engine import Engine, view
from vllm_watch.detectors.throughput_collapse import Detector, Settings

USUAL = {"running": 40.0, "kv": 0.1}  # 2,500 tokens per second
LOOK_S = 5.0


def verdict_on_first(seconds=1500.0, count=4, **load):
    """Of engines that were so from the first look: one that serves `load`, and its siblings."""
    detector, engines = Detector(Settings()), [Engine(str(n)) for n in range(count)]
    for look in range(int(seconds / LOOK_S)):
        samples = [each.run(LOOK_S, **(USUAL if n else load)) for n, each in enumerate(engines)]
        first, *others = detector.update(view((look + 1) * LOOK_S, *samples))
        assert all(each.state != "firing" for each in others)
    return first


SLOW = {"running": 200.0, "kv": 0.5, "slow": 2.0}
"""The same 2,500 tokens per second, by steps that take twice as long at every load."""


def test_equal_work_with_a_multiple_of_the_requests_is_a_ticket():
    told = verdict_on_first(**SLOW)
    assert (told.state, told.cause, told.severity) == ("firing", "slow_engine", "ticket")
    assert not told.restart_advised
    assert "5.0 times as many requests" in told.summary
    assert "3 sibling engines" in told.summary


OTHERWISE = {
    "it does more": {"running": 160.0, "kv": 0.4},
    "its requests have longer contexts": {"running": 93.0, "kv": 0.9},
    "one of two": {**SLOW, "count": 2},
    "for some minutes": {**SLOW, "seconds": 500.0},
}


@pytest.mark.parametrize("load", OTHERWISE.values(), ids=OTHERWISE)
def test_what_is_no_sign_of_slow_steps(load):
    assert verdict_on_first(**load).state != "firing"
