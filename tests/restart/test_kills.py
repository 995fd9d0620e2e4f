"""Watchers that are killed and suspended at any moment, over an engine that also heals by itself.

Two rules hold after every kill: no attempt calls its hook twice, and no engine is restarted that had served again for
longer than a look takes to become old.
"""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress

import pytest

from tests.daemon_process import daemon
from tests.restart.site import Site, ask, is_up
from tests.restart.test_daemon_restarts import until

KILLS = int(os.environ.get("VLLM_WATCH_TEST_KILLS", "6"))
SEED = int(os.environ.get("VLLM_WATCH_TEST_SEED", "18"))

OLD_SECONDS = 3.0
"""A look counts for a second at this pace; a machine that is busy with other tests needs some more to ask and to call."""

WHEN = 'date +%s.%N >> "$(dirname "$0")/called_at"\n'


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as running:
        first, _, rest = running.script.read_text().partition("\n")
        running.script.write_text(f"{first}\n{WHEN}{rest}")
        yield running


class Engine:
    """The engine of a site: it falls ill when it is told to, and heals by itself."""

    def __init__(self, site):
        self._site = site
        self.well = []  # (since, until): when it served, and nobody was to restart it

    def falls_ill(self):
        for each in self.well:
            each[1] = min(each[1], time.time())
        for pid in self._site.lines("starts"):
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGUSR1)

    async def heals(self):
        await asyncio.to_thread(self._site.heal)
        self.well.append([time.time(), float("inf")])


async def suspended(process, engine, chance):
    """The watcher sleeps; the engine may heal meanwhile."""
    process.process.send_signal(signal.SIGSTOP)
    if chance.random() < 0.7:
        await engine.heals()
    await asyncio.sleep(chance.uniform(1.0, 4.0))
    process.process.send_signal(signal.SIGCONT)


async def healed(process, engine, chance):
    """The engine heals while the watcher looks."""
    await engine.heals()


async def left_alone(process, engine, chance):
    """The watcher may do its work."""


async def test_kills(site):
    """Each round: it falls ill, something happens, and the watcher is killed."""
    chance, engine = random.Random(SEED), Engine(site)
    path = site.configure("auto", budget_per_hour=100, budget_per_day=100)
    for _ in range(KILLS):
        async with daemon("--config", path) as process:
            await until(process, is_up)
            await ask(process, "/api/v1/resume", {"reason": "the next round"})
            engine.falls_ill()
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            await chance.choice((suspended, suspended, healed, left_alone))(process, engine, chance)
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            await process.end(signal.SIGKILL)
        await engine.heals()
    assert len(site.calls) == len(set(site.calls))
    called = [float(each) for each in site.lines("called_at")]
    wrong = [
        (t - since_t)
        for t in called
        for since_t, until_t in engine.well
        if since_t + OLD_SECONDS < t < until_t
    ]
    assert wrong == []
