"""What needs no yardstick of the engine's own: steps that no GPU takes so long for, and clients that all leave."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Told, view
from vllm_watch.detectors.throughput_collapse import Detector, Settings

ONE = {"running": 1.0, "kv": 0.004, "prompt": 0.0}


@pytest.mark.parametrize("interval", [1.0, 5.0, 15.0])
def test_one_user_who_waits_a_second_for_each_token_is_a_ticket(interval):
    """From the first scrape, so that nothing else is known of it."""
    verdict = Told(Detector(Settings()), interval).part(180, **ONE, slow=125.0).verdict
    assert (verdict.state, verdict.severity, verdict.restart_advised) == ("firing", "ticket", False)
    assert "far longer than any GPU" in verdict.summary


@pytest.mark.parametrize(
    "load", [ONE | {"slow": 40.0}, {"running": 60.0, "kv": 0.3, "prompt": 8000.0, "slow": 6.0}]
)
def test_a_slow_gpu_and_large_prefills_are_no_crawl(load):
    assert Told(Detector(Settings())).part(300, **load).first is None


def ends(seconds, done=0.0, aborted=0.0):
    """The last verdict on an engine of which so many requests end a minute."""
    told = Told(Detector(Settings()))
    for second in range(0, seconds, 5):
        sample = told.engine.run(5.0, running=10.0, kv=0.1)
        counted = {"stop": 100.0 + done * second // 60, "abort": 7.0 + aborted * second // 60}
        sample = replace(sample, request_success=counted)
        (verdict,) = told.detector.update(view(told.engine.at_s, sample))
    return verdict


def test_clients_that_all_leave_are_a_ticket():
    verdict = ends(900, aborted=4.0)
    assert (verdict.state, verdict.severity, verdict.restart_advised) == ("firing", "ticket", False)
    assert "and none finished" in verdict.summary


@pytest.mark.parametrize("how", [{"aborted": 4.0, "done": 1.0}, {}, {"aborted": 0.2}])
def test_clients_of_whom_some_leave_are_none(how):
    assert ends(900, **how).state != "firing"
