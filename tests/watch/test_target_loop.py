"""The loop of one target: when it looks, what is judged with its answer; a look that fails is one look."""

import asyncio
import itertools
from collections import Counter
from contextlib import asynccontextmanager, suppress

from structlog.testing import capture_logs

from tests.dashboards.prometheus import free_port
from vllm_watch.board.board import Board
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.watch.target_loop import TOGETHER_SECONDS, TargetLoop, first_look_s
from vllm_watch.watch.watch import Watch

LOG = """\
INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1
INFO 11-21 03:00:02 [cuda.py:290] Using XFormers backend.
ERROR 11-21 03:00:09 [core.py:7] ValueError: No available memory for the cache blocks.
"""


class Host:
    """The host of a target: what the loop asks of it. `read` gives the GPUs of a look."""

    def __init__(self, read=lambda: None):
        self.read = read

    @property
    def gpus(self):
        return self.read()

    def concerning(self, target):
        return ()


class Publisher:
    """Keeps the observation of each look."""

    def __init__(self):
        self.seen = asyncio.Queue()

    def look(self, target, watch, look, signals, events, late_s):
        self.seen.put_nowait(look.observation)


@asynccontextmanager
async def looking(host=None, **settings):
    """The real loop, at a port where nothing listens; what it looks at comes to the publisher that is given."""
    target = Target(name="t", url=f"http://127.0.0.1:{free_port()}")
    scrape = ScrapeSettings(interval_seconds=0.2)
    async with http.new_session() as session:
        source, watch = VllmSource(target, scrape, session), Watch("t", detectors={})
        publisher = Publisher()
        loop = TargetLoop(
            target, scrape, source, watch, Board(), host or Host(), publisher, **settings
        )
        task = asyncio.create_task(loop.run(spread=False))
        try:
            yield publisher.seen
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_a_look_carries_what_the_log_says(tmp_path):
    """The attention kernels for advice, the failure for incidents: from a real file, once it was read."""
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    async with asyncio.timeout(60), looking(log=EngineLog("t", path)) as seen:
        look = await seen.get()
        while look.attention_backend is None:
            look = await seen.get()
    assert look.attention_backend == "XFormers"
    assert look.start_failure.failure == "oom_kv_alloc_or_profiling"


def test_first_looks_are_spread_over_the_interval_and_some_begin_together():
    """A thousand targets at 5 s: ten moments, half a second apart, about a hundred targets at each."""
    now_s, interval = 1234.567, 5.0
    first = [first_look_s(f"vllm-{number}:8000", now_s, interval) for number in range(1000)]
    assert all(at % TOGETHER_SECONDS == 0 for at in first)
    assert now_s <= min(first) <= max(first) <= now_s + interval + TOGETHER_SECONDS
    together = Counter(at % interval for at in first)
    assert len(together) == interval / TOGETHER_SECONDS
    assert max(together.values()) < 150


WITHOUT_MEMORY = (2, 3, 5)
"""Looks for which there is none."""


async def test_looks_that_fail_are_said_once_and_the_next_one_goes_on():
    """Out of memory at a look: one line with where it happened, however many fail in a row, and the loop lives."""
    numbers, shown = itertools.count(1), asyncio.Queue()

    def gpus():
        number = next(numbers)
        if number in WITHOUT_MEMORY:
            raise MemoryError(f"at look {number}")
        shown.put_nowait(number)

    with capture_logs() as said:
        async with asyncio.timeout(60), looking(Host(gpus)):
            looks = [await shown.get() for _ in range(3)]
    assert looks == [1, 4, 6]
    failed = [line for line in said if line["event"] == "look_failed"]
    assert [(line["target"], line["log_level"]) for line in failed] == [("t", "error")] * 2
    assert all(line["exc_info"] for line in failed)
