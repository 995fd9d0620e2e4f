"""Work beside the event loop ends, whatever becomes of its thread."""

import pytest

from vllm_watch.support import threads


async def test_a_thread_that_dies_without_a_word_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where memory is at its limit not even its end may be said; who waits is told that memory lacks."""
    monkeypatch.setattr(threads, "COMPUTED_SECONDS_MAX", 0.05)
    monkeypatch.setattr(threads, "begin", lambda _: True)
    with pytest.raises(MemoryError):
        await threads.computed(lambda: 1)


async def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    """And what it returns is returned."""
    assert await threads.computed(lambda: 1) == 1
    with pytest.raises(KeyError):
        await threads.computed(lambda: {}["x"])
