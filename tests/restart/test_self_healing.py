"""Engines that recover by themselves are left alone: a restart acts on what the last scrape has found, or not at all."""

import asyncio
import signal

import pytest

from tests.daemon_process import daemon
from tests.restart.site import Site, ask, incidents, is_up
from tests.restart.test_daemon_restarts import ill, until, waiting

LOOKS_SECONDS = 6.0  # the dispatcher asks every five seconds, looks come five times a second


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as running:
        yield running


def serves(status):
    return is_up(status) and not waiting(status)


async def test_a_yes_to_trouble_that_is_over_is_refused(site):
    """It says so; a restart that a person demands by name is still made, and is told the same."""
    async with daemon("--config", site.configure("approve")) as process:
        incident = await ill(process, site)
        await until(process, waiting)
        site.heal()
        status = await until(process, serves)
        assert [each["id"] for each in incidents(status)] == [incident]  # it recovers
        code, said = await ask(process, f"/api/v1/incidents/{incident}/approve")
        assert code == 409, said
        assert "he trouble is over since" in said["error"]
        assert site.calls == []
        code, said = await ask(process, "/api/v1/targets/a/restart", {"reason": "to be sure"})
        assert code == 202, said
        assert "but the trouble is over since" in said["text"]


async def test_a_pause_outlasts_the_trouble(site):
    """What waited for the end of a pause is not done when the engine serves again."""
    async with daemon("--config", site.configure("auto")) as process:
        await until(process, is_up)
        await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 30})
        await ill(process, site)
        await until(process, waiting)
        site.heal()
        await until(process, serves)
        assert (await ask(process, "/api/v1/resume"))[0] == 200
        await asyncio.sleep(LOOKS_SECONDS)
        assert incidents(await process.status())  # still open, and nothing was done for it
        assert site.calls == []


async def test_a_look_from_before_a_suspension_does_not_count(site):
    """The watcher was stopped, the engine was replaced meanwhile, and the pause ran out."""
    async with daemon("--config", site.configure("auto")) as process:
        await until(process, is_up)
        await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 0.1})
        await ill(process, site)
        await until(process, lambda s: waiting(s) and waiting(s)[0]["gate"] == "pause")
        process.process.send_signal(signal.SIGSTOP)
        site.heal()
        await asyncio.sleep(LOOKS_SECONDS)
        process.process.send_signal(signal.SIGCONT)
        await until(process, serves)
        await asyncio.sleep(LOOKS_SECONDS)
        assert site.calls == []
