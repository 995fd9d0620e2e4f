"""A daemon that gets a twentieth of a CPU: stopped and continued in turns, by signals."""

import asyncio

import pytest

from tests.faults.host import Starved
from tests.faults.site import PATIENCE_SECONDS, site

# A time-out shorter than the pauses: each look that one falls into is slept through.
IMPATIENT = {
    "VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "2",
    "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "2",
}


@pytest.mark.parametrize(
    ("on_s", "of_s", "rounds"), [(0.05, 1.0, 8), (0.2, 4.0, 6)], ids=["evenly", "in long pauses"]
)
async def test_a_watcher_with_five_percent_of_a_cpu(on_s, of_s, rounds):
    """Later looks, no false word: a time-out that it slept through is not the engine's silence."""
    async with site(environ=IMPATIENT) as here:
        before = (await here.target())["sources"]["metrics"]["calls"]
        here.well.answer_seconds = (
            0.3  # longer than it runs at a time: no look begins and ends in one go
        )
        with Starved(here.process.process.pid, on_s, of_s) as starved:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while starved.rounds < rounds:
                    await asyncio.sleep(0.5)
        here.well.answer_seconds = 0.0
        after = await here.looks(1)
        assert here.opened == []
        assert after["incidents"] == []
        assert after["sources"]["metrics"]["calls"] > before
        await here.until(lambda target: target["state"] == "serving")
        assert (await here.dies())["cause"] == "crash"


async def test_one_that_dies_while_the_watcher_has_no_cpu_is_told():
    """A refused connection needs no patience: it is told as soon as it is seen."""
    async with site() as here:
        with Starved(here.process.process.pid, 0.1, 2.0):
            await here.other.misbehave("refuses")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while ("other", "engine_down") not in here.opened:
                    await asyncio.sleep(0.2)
        assert (await here.looks(3))["incidents"] == []
