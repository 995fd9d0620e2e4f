"""Counting by phase must give what counting request by request gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.lab.batch import KvCache


@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=10),
    st.integers(0, 100),
    st.integers(0, 100),
    st.sampled_from([1, 2, 4, 8]),
)
def test_blocks_due_equal_the_sum_over_requests(prompts, before, steps, step_tokens):
    """Whatever the requests hold and however many steps were done, the blocks to come are exact."""
    kv = KvCache(10_000, 8, step_tokens)
    for prompt in prompts:
        kv.used_blocks += kv.blocks_of(prompt)
        kv.begin_decoding(prompt)
    kv.take_steps(before)
    assert kv.used_blocks == sum(kv.blocks_of(p + before * step_tokens) for p in prompts)

    due = kv.blocks_due(steps)

    then = sum(kv.blocks_of(p + (before + steps) * step_tokens) for p in prompts)
    assert due == then - kv.used_blocks


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 300), st.integers(0, 40)
)
def test_steps_that_fit_is_the_most_that_fits(prompts, steps, spare):
    """One step more would need a block that is not there."""
    kv = KvCache(sum(-(-p // 8) for p in prompts) + spare, 8)
    for prompt in prompts:
        kv.used_blocks += kv.blocks_of(prompt)
        kv.begin_decoding(prompt)

    fit = kv.steps_that_fit(steps)

    assert kv.blocks_due(fit) <= kv.free_blocks
    assert fit == steps or kv.blocks_due(fit + 1) > kv.free_blocks


def test_a_step_must_divide_a_block():
    """Otherwise the phase of a request would drift."""
    with pytest.raises(ValueError, match="3 tokens a step do not divide a block of 16"):
        KvCache(10, 16, 3)
