"""An engine beside its own past: the work of its requests, those that get no token, and steps or ends that need no yardstick."""

from dataclasses import replace

import pytest

from tests.detectors.made_up_engine import Told, view
from vllm_watch.detectors.collapse_own import OwnWork, Stuck
from vllm_watch.detectors.throughput_collapse import Detector, Settings
from vllm_watch.signals.blocks import Block

BLOCK = Block(
    at_s=0.0, seconds=10.0, steps=1000.0, step_seconds=0.01, tokens_per_step=70.0, kv_usage=0.03, running=25.0,
    waiting=0.0, waiting_min=0.0, running_min=20.0, generated=2500.0, prompted=4400.0, finished=20.0,
    finished_tokens=8000.0, preempted=0.0,
)  # fmt: skip
SLOW = replace(BLOCK, running=100.0, kv_usage=0.12, step_seconds=0.05)


def minutes(work, count, block):
    """What is found after so many more minutes of such blocks."""
    for _ in range(count * 6):
        work.add(block)
    return work.found()


def usual():
    work = OwnWork()
    assert minutes(work, 30, BLOCK) is None
    return work


def test_the_usual_tokens_with_a_multiple_of_the_requests_are_told_for_as_long_as_that_lasts():
    work = usual()
    found = minutes(work, 20, SLOW)
    assert found.value == pytest.approx(5.0, rel=0.2)
    assert (
        "times as many requests at once as usual and produces no more tokens per second"
        in found.text
    )
    assert minutes(work, 180, SLOW) is not None
    assert minutes(work, 1, BLOCK) is None, "whatever the mean of the last five minutes says"


def test_what_was_found_holds_while_it_swings():
    """Half a minute of less is no end of it; nor is it a beginning."""
    lighter = replace(SLOW, running=45.0, kv_usage=0.054, step_seconds=0.017)
    work = usual()
    minutes(work, 20, SLOW)
    assert minutes(work, 1, lighter) is not None
    assert minutes(usual(), 20, lighter) is None


def test_a_queue_that_is_worked_off_is_more_work():
    """After a pause the mean of five minutes is as usual, and what the last minute does is not."""
    work = usual()
    minutes(work, 3, replace(SLOW, generated=1000.0, prompted=1700.0))
    assert minutes(work, 5, replace(SLOW, generated=5000.0, step_seconds=0.03)) is None


def test_a_slowdown_is_not_learnt_on_its_way():
    """It comes over an hour; what it passes through does not become the usual."""
    work = usual()
    for step in range(60):
        share = step / 60.0
        minutes(work, 1, replace(
            BLOCK, running=25.0 + 75.0 * share, kv_usage=0.03 + 0.09 * share, step_seconds=0.01 + 0.04 * share
        ))  # fmt: skip
    assert minutes(work, 20, SLOW) is not None


OTHERS = {
    "twice as many requests": replace(BLOCK, running=50.0, kv_usage=0.06, step_seconds=0.05),
    "steps twice as long": replace(SLOW, step_seconds=0.02),
    "more prompts": replace(SLOW, prompted=8800.0),
    "longer contexts": replace(SLOW, kv_usage=0.2),
    "more tokens per second": replace(SLOW, generated=8000.0),
    "nothing is known of steps": replace(SLOW, step_seconds=None),
    "nobody runs": replace(SLOW, running=0.0, generated=0.0),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_sign_of_slow_steps(what):
    assert minutes(usual(), 20, OTHERS[what]) is None


def test_it_is_not_said_before_the_usual_is_known():
    work = OwnWork()
    assert minutes(work, 9, BLOCK) is None
    assert minutes(work, 30, SLOW) is None


@pytest.mark.parametrize("lacking", [{"running": 0.0}, {"kv_usage": None}, {"kv_usage": 0.0}])
def test_what_does_not_tell_the_load_teaches_nothing(lacking):
    """A gauge may read 0 at every look of a block that made tokens."""
    work = OwnWork()
    assert minutes(work, 30, replace(BLOCK, **lacking)) is None
    assert minutes(work, 30, SLOW) is None


DECODING = Block(
    at_s=0.0, seconds=10.0, steps=500.0, step_seconds=0.02, tokens_per_step=50.0, kv_usage=0.3, running=40.0,
    waiting=0.0, waiting_min=0.0, running_min=40.0, generated=2000.0, prompted=500.0, finished=20.0,
    finished_tokens=8000.0, preempted=0.0, first_token_seconds=5.0,
)  # fmt: skip


def stuck_minutes(stuck, count, block):
    for _ in range(count * 6):
        stuck.add(block)
    return stuck


WITH_TWENTY = replace(DECODING, running=60.0, running_min=60.0)


def test_requests_that_get_no_token_are_told_after_ten_minutes():
    stuck = stuck_minutes(Stuck(), 20, DECODING)
    assert stuck_minutes(stuck, 9, WITH_TWENTY).found() is None
    found = stuck_minutes(stuck, 1, WITH_TWENTY).found()
    assert found.value == 20
    assert "20 of 60 running requests" in found.text


NO_TROUBLE = {
    "all decode": DECODING,
    "a few between steps": replace(DECODING, running=44.0),
    "their prompts are being computed": replace(WITH_TWENTY, first_token_seconds=200.0),
    "speculative decoding gives fewer tokens": replace(DECODING, generated=1500.0),
}


@pytest.mark.parametrize("block", NO_TROUBLE.values(), ids=NO_TROUBLE)
def test_what_gets_its_tokens_is_well(block):
    usual = replace(DECODING, generated=3000.0) if block.generated == 1500.0 else DECODING
    assert stuck_minutes(stuck_minutes(Stuck(), 20, usual), 30, block).found() is None


def test_one_good_minute_denies_that_they_are_stuck():
    stuck = stuck_minutes(stuck_minutes(Stuck(), 20, DECODING), 9, WITH_TWENTY)
    stuck_minutes(stuck, 1, DECODING)
    assert stuck_minutes(stuck, 9, WITH_TWENTY).found() is None


def test_an_engine_that_makes_no_step_is_another_trouble():
    stuck = stuck_minutes(stuck_minutes(Stuck(), 20, DECODING), 12, WITH_TWENTY)
    stuck.add(replace(WITH_TWENTY, steps=0.0, generated=0.0))
    assert stuck.found() is None


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
