"""The loop of one target: what its engine's log says is in the looks that are judged."""

import asyncio
from contextlib import suppress

from tests.dashboards.prometheus import free_port
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.target_loop import TargetLoop
from vllm_watch.watch import Watch

LOG = """\
INFO 11-21 03:00:00 [api_server.py:1805] vLLM API server version 0.10.1
INFO 11-21 03:00:02 [cuda.py:290] Using XFormers backend.
ERROR 11-21 03:00:09 [core.py:7] ValueError: No available memory for the cache blocks.
"""


async def test_a_look_carries_what_the_log_says(tmp_path):
    """The attention kernels for advice, the failure for incidents: from a real file, once it was read."""
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    seen = asyncio.Queue()

    def publish(look, signals, events):
        seen.put_nowait(look.observation)
        return events

    target = Target(name="t", url=f"http://127.0.0.1:{free_port()}")
    scrape = ScrapeSettings(interval_seconds=1)
    async with http.new_session() as session:
        loop = TargetLoop(
            target, scrape, VllmSource(target, scrape, session), Watch("t", detectors={}), publish,
            lambda: None, log=EngineLog("t", path),
        )  # fmt: skip
        task = asyncio.create_task(loop.run(spread=False))
        try:
            async with asyncio.timeout(60):
                look = await seen.get()
                while look.attention_backend is None:
                    look = await seen.get()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    assert look.attention_backend == "XFormers"
    assert look.start_failure.failure == "oom_kv_alloc_or_profiling"
