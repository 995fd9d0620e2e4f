"""Prompts under way, by the pages that they took and the tokens that are not counted yet."""

from vllm_watch.signals.blocks import LongPrompts

SHORT = (3000.0, 3200.0, 3100.0)  # a block's: gained, counted, finished


def notes(*blocks, step_s=5.0):
    prompts = LongPrompts()
    return [prompts.note(n * step_s, *block) for n, block in enumerate(blocks)]


def test_short_prompts_are_none():
    assert not any(notes(*[SHORT] * 50))


def test_a_long_one_is_seen_until_it_is_counted():
    """The block that counts it is strange, too: a heap of tokens that took no time."""
    told = notes(SHORT, (100_000.0, 500.0, 0.0), (0.0, 0.0, 400.0), (0.0, 101_000.0, 0.0), SHORT)
    assert told == [False, True, True, True, False]


def test_chunks_add_up():
    """An engine that computes 9,000 tokens a block takes pages chunk by chunk."""
    told = notes(*[(9000.0, 100.0, 0.0)] * 4, (0.0, 36_500.0, 0.0), SHORT)
    assert told == [False, True, True, True, True, False]


def test_pages_that_leak_are_no_prompt_for_ever():
    told = notes((50_000.0, 500.0, 0.0), *[SHORT] * 200)
    assert told[10]
    assert not any(told[70:])
