"""Looks are joined until enough happened; what is not known stays unknown."""

from dataclasses import replace

import pytest

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.signals.blocks import NEEDED, Blocks, LongPrompts
from vllm_watch.signals.state import requests_awaiting_kv

FIRST = EngineSample(
    engine="0", requests_running=4.0, requests_waiting=0.0, kv_cache_usage=0.2, preemptions=1.0,
    prompt_tokens=1000.0, generation_tokens=500.0, request_success={"stop": 5.0, "length": 1.0},
    iteration_tokens=Histogram(100.0, 1500.0), inter_token_latency=Histogram(400.0, 8.0),
    request_prompt_tokens=Histogram(6.0, 900.0), request_generation_tokens=Histogram(6.0, 400.0),
    prefix_cache_queries=1000.0, prefix_cache_hits=0.0,
)  # fmt: skip
LATER = replace(
    FIRST, requests_running=6.0, requests_waiting=2.0, kv_cache_usage=0.4, preemptions=3.0,
    prompt_tokens=1400.0, generation_tokens=1000.0, request_success={"stop": 8.0, "length": 2.0},
    iteration_tokens=Histogram(200.0, 2400.0), inter_token_latency=Histogram(900.0, 28.0),
    request_prompt_tokens=Histogram(10.0, 1500.0), request_generation_tokens=Histogram(10.0, 800.0),
    prefix_cache_queries=1400.0, prefix_cache_hits=100.0,
)  # fmt: skip


def block(first=FIRST, later=LATER, seconds=5.0):
    blocks = Blocks()
    assert blocks.add(0.0, first, anew=False) is None
    return blocks.add(seconds, later, anew=False)


def test_what_a_block_says():
    """Means of gauges, growth of counters, prompt tokens less those that the cache gave."""
    found = block()
    assert (found.at_s, found.seconds, found.steps) == (5.0, 5.0, 100.0)
    assert found.step_seconds == pytest.approx(0.04)  # the latency; elapsed is 0.05
    assert found.tokens_per_step == pytest.approx((500 + 400 * 0.75) / 100)
    assert (found.running, found.running_min, found.waiting, found.waiting_min) == (5, 4, 1, 0)
    assert found.kv_usage == pytest.approx(0.3)
    assert found.generated == 100.0
    assert found.prompted == 60.0
    assert (found.finished, found.finished_tokens, found.preempted) == (4.0, 1000.0, 2.0)


def test_prompts_that_are_computed_again_are_estimated():
    """By what a running request holds: at most in the block of the preemption and the next one."""
    blocks = Blocks()
    info = {"num_gpu_blocks": "1000", "block_size": "16"}
    kinds = []
    for n, count in enumerate([1.0, 1.0, 3.0, 3.0, 3.0, None, 3.0]):
        steps, tokens = Histogram(100.0 + 50.0 * n, 0.0), {"generation_tokens": 500.0 + 200.0 * n}
        look = replace(
            FIRST, preemptions=count, cache_config_info=info, iteration_tokens=steps, **tokens
        )
        found = blocks.add(8.0 * n, look, anew=False)
        kinds.append(None if found is None else (found.recomputed, found.tokens_per_step))
    again = pytest.approx(2 * 0.2 * 16_000 / 4), pytest.approx((200 + 1600) / 50)
    assert kinds == [None, (0.0, 4.0), again, again, (0.0, 4.0), (0.0, 4.0), (0.0, 4.0)]


MISSING = {
    "steps are not counted: each gives every request a token": (
        {"iteration_tokens": None}, "steps", pytest.approx(125.0),
    ),
    "nor is the latency known": (
        {"iteration_tokens": None, "inter_token_latency": None}, "steps", None,
    ),
    "no latency: time by steps, while it was busy": (
        {"inter_token_latency": None}, "step_seconds", pytest.approx(0.05),
    ),
    "... and nothing while it was idle in between": (
        {"inter_token_latency": None, "requests_running": 0.0}, "step_seconds", None,
    ),
    "no cache counters": ({"prefix_cache_queries": None}, "prompted", pytest.approx(80.0)),
    "... and it is said": ({"requests_waiting": None}, "lacks", {"requests_waiting"}),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "name", "value"), MISSING.values(), ids=MISSING)
def test_what_is_missing(fields, name, value):
    found = block(replace(FIRST, **fields), replace(LATER, **fields))
    assert getattr(found, name) == value


PREFILLS = {"first": Histogram(100.0, 0.7), "later": Histogram(350.0, 5.7)}


def test_a_step_of_an_engine_that_embeds_lasts_as_long_as_a_prompt():
    """No token is generated, and between its steps it is idle: elapsed by steps would be 0.05."""
    quiet = {
        "generation_tokens": 500.0,
        "inter_token_latency": Histogram(400.0, 8.0),
        "requests_running": 0.0,
    }
    first = replace(FIRST, **quiet, prefill_time=PREFILLS["first"])
    later = replace(LATER, **quiet, prefill_time=PREFILLS["later"])
    assert block(first, later).step_seconds == pytest.approx(0.02)
    assert block(first, replace(later, prefill_time=None)).step_seconds is None


@pytest.mark.parametrize("field", NEEDED)
def test_no_block_without_what_tells_the_load(field):
    """Nor one across the look that lacked it: what is left of a load looks lighter than it is."""
    blocks = Blocks()
    blocks.add(0.0, FIRST, anew=False)
    assert blocks.add(5.0, replace(LATER, **{field: None}), anew=False) is None
    assert blocks.add(10.0, LATER, anew=False) is None
    assert blocks.add(15.0, LATER, anew=False).seconds == 5.0


def steps(count):
    return replace(
        FIRST, iteration_tokens=Histogram(float(count), 0.0), generation_tokens=float(count)
    )


def test_a_block_lasts_two_seconds_and_twenty_steps_or_eight_seconds():
    blocks = Blocks()
    blocks.add(0.0, steps(0), anew=False)
    assert blocks.add(1.0, steps(50), anew=False) is None
    assert blocks.add(2.0, steps(100), anew=False).steps == 100
    assert blocks.add(4.0, steps(119), anew=False) is None
    assert blocks.add(6.0, steps(120), anew=False).steps == 20
    assert blocks.add(13.0, steps(121), anew=False) is None
    assert blocks.add(14.0, steps(121), anew=False).steps == 1


def test_no_block_across_another_creation():
    """The counters of the new process may already be beyond the old one's."""
    assert block(replace(FIRST, created_time=1.0), replace(LATER, created_time=2.0)) is None
    assert block(replace(FIRST, created_time=1.0), replace(LATER, created_time=1.0)) is not None


SHORT = (3000.0, 3200.0, 3100.0)  # a block's: gained, counted, finished


def notes(*blocks, step_s=5.0):
    prompts = LongPrompts()
    return [prompts.note(n * step_s, *block) for n, block in enumerate(blocks)]


def test_a_long_one_is_seen_until_it_is_counted():
    """The block that counts it is strange, too: a heap of tokens that took no time."""
    told = notes(SHORT, (100_000.0, 500.0, 0.0), (0.0, 0.0, 400.0), (0.0, 101_000.0, 0.0), SHORT)
    assert told == [False, True, True, True, False]


def test_chunks_add_up():
    """An engine that computes 9,000 tokens a block takes pages chunk by chunk."""
    told = notes(*[(9000.0, 100.0, 0.0)] * 4, (0.0, 36_500.0, 0.0), SHORT)
    assert told == [False, True, True, True, True, False]


WAITS = {"requests_waiting": 9.0, "requests_waiting_by_reason": {"capacity": 5.0, "deferred": 4.0}}


@pytest.mark.parametrize(
    ("says", "awaiting"),
    [
        (WAITS | {"external_prefix_cache_queries": 0.0}, 0.0),
        (WAITS | {"external_prefix_cache_queries": 7.0}, 4.0),
        (WAITS | {"kv_transfers": {}}, 4.0),
        (WAITS | {"kv_failures": {}, "requests_waiting_by_reason": None}, 9.0),
        (WAITS | {"num_requests_kv_fetch_by_stage": {"waiting": 2.0, "loading": 1.0}}, 3.0),
    ],
)
def test_requests_that_wait_for_kv_from_elsewhere(says, awaiting):
    """Where a connector is at work; before vLLM 0.20 any that waits may be one."""
    assert requests_awaiting_kv(EngineSample(engine="0", **says)) == awaiting
