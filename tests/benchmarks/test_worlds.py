"""Worlds of the bench that a mend came from, each by the seed that showed it."""

from benchmarks.bench_worlds import tell
from benchmarks.detection import worlds


def test_an_engine_that_works_through_its_queue_wakes_nobody(monkeypatch):
    """A bunch of long prompts had taken the pages; it is computed, and hundreds of requests are being served."""
    bunches = worlds.World("bunches", "", worlds._long_prompts(100.0), run={"load": 0.2})
    monkeypatch.setitem(worlds.WORLDS, bunches.slug, bunches)
    told = tell(bunches.slug, 14)
    assert any("again, with" in line for line in told.lines)
    assert (told.pages, told.advised) == (0, 0)
