"""Requests that run and never get a token, while others come and go."""

from dataclasses import replace

import pytest

from vllm_watch.detectors.collapse_stuck import Stuck
from vllm_watch.signals.blocks import Block

BLOCK = Block(
    at_s=0.0, seconds=10.0, steps=500.0, step_seconds=0.02, tokens_per_step=50.0, kv_usage=0.3, running=40.0,
    waiting=0.0, waiting_min=0.0, running_min=40.0, generated=2000.0, prompted=500.0, finished=20.0,
    finished_tokens=8000.0, preempted=0.0, first_token_seconds=5.0,
)  # fmt: skip


def minutes(stuck, count, block):
    for _ in range(count * 6):
        stuck.add(block)
    return stuck


WITH_TWENTY = replace(BLOCK, running=60.0, running_min=60.0)


def test_it_takes_ten_minutes_to_be_told():
    stuck = minutes(Stuck(), 20, BLOCK)
    assert minutes(stuck, 9, WITH_TWENTY).found() is None
    found = minutes(stuck, 1, WITH_TWENTY).found()
    assert found.value == 20
    assert "20 of 60 running requests" in found.text


OTHERS = {
    "all decode": BLOCK,
    "a few between steps": replace(BLOCK, running=44.0),
    "their prompts are being computed": replace(WITH_TWENTY, first_token_seconds=200.0),
    "speculative decoding gives fewer tokens": replace(BLOCK, generated=1500.0),
}


@pytest.mark.parametrize("block", OTHERS.values(), ids=OTHERS)
def test_others(block):
    usual = replace(BLOCK, generated=3000.0) if block.generated == 1500.0 else BLOCK
    assert minutes(minutes(Stuck(), 20, usual), 30, block).found() is None


def test_one_good_minute_denies_it():
    stuck = minutes(minutes(Stuck(), 20, BLOCK), 9, WITH_TWENTY)
    minutes(stuck, 1, BLOCK)
    assert minutes(stuck, 9, WITH_TWENTY).found() is None


def test_an_engine_that_makes_no_step_is_another_trouble():
    stuck = minutes(minutes(Stuck(), 20, BLOCK), 12, WITH_TWENTY)
    stuck.add(replace(WITH_TWENTY, steps=0.0, generated=0.0))
    assert stuck.found() is None
