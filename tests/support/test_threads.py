"""Work beside the event loop ends, whatever becomes of its thread."""

import asyncio
from collections.abc import Callable

import pytest

from vllm_watch.support import threads


def done_at_once(work: Callable[[], None]) -> bool:
    """A thread that has ended as soon as it is begun."""
    work()
    return True


async def test_a_cancellation_that_comes_with_the_result_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`asyncio.wait_for` loses it up to Python 3.11: the loop of a target that is gone then goes on for ever."""
    monkeypatch.setattr(threads, "begin", done_at_once)
    waiting = asyncio.create_task(threads.run(lambda: 1, 60))
    await asyncio.sleep(0)  # it waits, and the result is on its way
    await asyncio.sleep(0)  # the result is there
    assert waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_thread_that_dies_without_a_word_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where memory is at its limit not even its end may be said; who waits is told that memory lacks."""
    monkeypatch.setattr(threads, "COMPUTED_SECONDS_MAX", 0.05)
    monkeypatch.setattr(threads, "begin", lambda _: True)
    with pytest.raises(MemoryError):
        await threads.compute(lambda: 1)


async def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    assert await threads.compute(lambda: 1) == 1
    with pytest.raises(KeyError):
        await threads.compute(lambda: {}["x"])
