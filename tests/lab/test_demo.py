"""The demo: a story on real ports that a daemon can take for a real fleet."""

import time

import aiohttp
import pytest

from vllm_watch.cli.demo import Demo
from vllm_watch.lab.live import Live
from vllm_watch.lab.reading import read
from vllm_watch.lab.stories import STORIES
from vllm_watch.sources.reading import Reader


async def test_a_demo_serves_its_targets_and_its_gpus():
    """Every target answers with vLLM's metrics, the GPUs hold its engines, and all of it ends."""
    demo = Demo(speed=10.0)
    targets = await demo.start()
    try:
        async with aiohttp.ClientSession() as session:
            for target in targets:
                async with session.get(f"{target.url}/metrics") as response:
                    reading = Reader().read(await response.text())
                assert reading.vllm
        gpus = await demo.gpu_source.read()
    finally:
        await demo.stop()

    assert [target.name for target in targets] == ["chat", "search", "batch", "legacy"]
    assert len({target.url for target in targets}) == 4
    assert gpus.status == "ok"
    assert [len(gpu.processes) for gpu in gpus.gpus] == [1, 1, 1, 2]


@pytest.mark.parametrize("story", STORIES)
async def test_every_story_can_be_shown_live(story):
    """It starts and stops cleanly, also one whose servers are not there yet."""
    demo = Demo(story, speed=100.0)
    targets = await demo.start()
    await demo.stop()
    assert len(targets) == len({target.name for target in targets}) > 0


async def test_a_scene_that_was_played_before_goes_on():
    """Its processes are as old as they were, and its engines have done what they did."""
    scene = STORIES["healthy"].build(1)
    scene.begin_at(time.time() - 300.0)
    scene["vllm"].host_leak_bytes_per_second = 2.0**20
    scene.advance(300.0)
    before = read(scene["vllm"])
    async with Live(scene) as live:
        live.advance()
        after = read(scene["vllm"])
    assert 300.0 <= scene.t < 360.0
    assert after.server.process_start_time == before.server.process_start_time
    assert after.engines[0].generation_tokens >= before.engines[0].generation_tokens > 0
    young = read(STORIES["healthy"].build(1)["vllm"])
    grown = after.server.process_resident_memory_bytes - young.server.process_resident_memory_bytes
    assert grown > 300 * 2**20
