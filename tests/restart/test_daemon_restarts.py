"""The whole way, with real processes: an engine falls ill, and is restarted as far as was allowed."""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest

from tests.daemon_process import daemon
from tests.restart.site import answers, ask, incidents, is_up, plan, wait_for
from tests.support.test_service_manager import systemd

PATIENCE_SECONDS = 40.0  # on a machine busy with other tests; alone each step takes two seconds


def waiting(status):
    return plan(status).get("waiting") or []


def last(status):
    return plan(status).get("last") or {}


def under_way(status):
    return plan(status).get("under_way") or {}


async def until(process, true):
    return await process.until(true, PATIENCE_SECONDS)


async def ill(process, site):
    """Let the engine's core die; returns the id of the incident."""
    await until(process, is_up)
    site.send(signal.SIGUSR1)
    status = await until(process, incidents)
    return incidents(status)[0]["id"]


async def test_an_incident_waits_for_a_yes_and_the_restart_helps(site):
    """Dead engine, incident, a person's yes, evidence, hook, new process, helped; and no second page."""
    async with daemon("--config", site.configure("approve")) as process:
        incident = await ill(process, site)
        status = await until(process, lambda s: waiting(s) and waiting(s)[0]["verdict"])
        said = waiting(status)[0]
        assert (said["verdict"], said["gate"], said["incident_id"]) == (
            "approve", "approval", incident,
        )  # fmt: skip
        assert site.calls == []
        code, answer = await ask(process, f"/api/v1/incidents/{incident}/approve")
        assert (code, answer["verdict"]) == (202, "act")
        status = await until(process, last)
        assert last(status)["state"] == "helped", last(status)
        assert last(status)["actor"] == "anna"
        assert len(site.calls) == 1
        assert len(site.lines("starts")) == 2
        opened = [line["kind"] for line in process.events("incident_opened")]
        assert opened == ["engine_down"]
        bundle = list((site.folder / "state/evidence").glob("*.tar"))
        assert [site.calls[0] in each.name for each in bundle] == [True]
        metrics = await process.shows(
            'vllm_watch_restarts_total{target="a",trigger="incident",outcome="helped"} 1'
        )
        assert 'vllm_watch_restart_budget_remaining{target="a"} 4' in metrics
        assert await process.end() == 0


async def test_a_restart_that_does_not_bring_it_back_pages(site):
    """A server that stays away after our restart is down, a page, whatever it looks like; and is not tried again."""
    path = site.configure("auto", verify={"start_seconds": 3, "settle_seconds": 1})
    async with daemon("--config", path) as process:
        await until(process, is_up)
        (site.folder / "broken").touch()
        site.send(signal.SIGUSR1)
        status = await until(process, last)
        assert last(status)["state"] == "did_not_help", last(status)
        status = await until(
            process, lambda s: any(i["cause"] != "engine_dead" for i in incidents(s))
        )
        assert [i["severity"] for i in incidents(status)] == ["page"]
        assert "did not come back" in incidents(status)[0]["summary"]
        status = await until(process, lambda s: plan(s)["breaker"])
        assert "did not help" in plan(status)["breaker"]
        assert len(site.calls) == 1


@pytest.mark.parametrize("when", ["the hook runs", "it is verified"])
async def test_a_killed_daemon_does_not_call_the_hook_again(site, when):
    """kill -9 in the middle of an attempt: the next daemon goes on verifying, and calls nothing."""
    slow = when == "the hook runs"
    if slow:
        (site.folder / "slow").touch()
    path = site.configure("auto", verify={"start_seconds": 30, "settle_seconds": 5})
    async with daemon("--config", path) as process:
        await ill(process, site)
        state = "calling" if slow else "verifying"
        await until(process, lambda s: under_way(s).get("state") == state)
        await process.end(signal.SIGKILL)
    (site.folder / "slow").unlink(missing_ok=True)
    async with daemon("--config", path) as process:
        status = await until(process, is_up)
        status = await until(
            process, lambda s: last(s) and last(s)["state"] in ("helped", "did_not_help", "uncertain")
        )  # fmt: skip
        assert last(status)["state"] == ("uncertain" if slow else "helped"), last(status)
        await asyncio.sleep(1)
        assert len(site.calls) == 1


BY_NAME = "/api/v1/targets/a/restart", {"reason": "slow"}


@asynccontextmanager
async def busy(site):
    """A request is in hand, for minutes: the drain waits for it."""
    url = f"http://127.0.0.1:{site.port}/v1/completions"

    async def ask_it():
        with suppress(aiohttp.ClientError):
            body = {"prompt": "x", "max_tokens": 8000}
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, json=body) as response,
            ):
                await response.read()

    await asyncio.to_thread(wait_for, lambda: answers(site.port))
    asking = asyncio.create_task(ask_it())
    yield
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


def has_request(status):
    (target,) = status["targets"]
    engines = (target["signals"] or {}).get("engines") or {}
    return any(each["requests_running"] for each in engines.values())


async def events(process, name):
    """The lines of the log with this name, once there is one."""
    async with asyncio.timeout(40):
        while not (found := process.events(name)):
            await asyncio.sleep(0.05)
    return found


HALVES = """\
#!/bin/sh
echo "$VLLM_WATCH_ATTEMPT_ID" >> {folder}/calls
kill -9 "$(cat {folder}/pid)"
touch {folder}/halfway
while test -e {folder}/halfway; do sleep 0.05; done
"""


async def test_a_hook_that_has_begun_may_end(site):
    """SIGTERM between stop and start: the watcher waits for the start, and says so; the next one sees that it helped."""
    path = site.configure("auto")
    begins = site.script.read_text().splitlines()[-1]
    site.script.write_text(HALVES.format(folder=site.folder) + begins + "\n")
    halfway = site.folder / "halfway"
    with systemd(site.folder) as (bound, environ):
        await stopped_halfway(path, halfway, environ)
        assert "EXTEND_TIMEOUT_USEC=73000000" in bound.waiting()
    await asyncio.to_thread(wait_for, lambda: len(site.lines("starts")) == 2)
    async with daemon("--config", path) as process:
        status = await until(process, lambda s: last(s).get("state") == "helped")
        assert len(site.calls) == 1, last(status)


async def stopped_halfway(path, halfway, environ):
    """One run of the watcher, which is told to end while its hook waits."""
    async with daemon("--config", path, environ=environ) as process:
        await until(process, is_up)
        await ask(process, *BY_NAME)
        await asyncio.to_thread(wait_for, halfway.exists)
        process.process.send_signal(signal.SIGTERM)
        (said,) = await events(process, "hook_awaited")
        assert said["target"] == "a"
        assert said["seconds_max"] == 73.0
        # All is still served. The hook begins once `calling` is on the disk, and is shown a moment later.
        await until(process, lambda status: under_way(status).get("state") == "calling")
        halfway.unlink()
        assert await asyncio.wait_for(process.process.wait(), 40) == 0


async def test_nothing_is_called_once_it_stops(site):
    """SIGTERM while it drains, for a request that takes minutes: the hook has not begun, and does not."""
    path = site.configure("auto", drain={"deadline_seconds": 60})
    async with daemon("--config", path) as process, busy(site):
        await until(process, lambda s: is_up(s) and has_request(s))
        await ask(process, *BY_NAME)
        await until(process, lambda s: "waiting at most" in under_way(s).get("text", ""))
        assert await process.end() == 0
    async with daemon("--config", path) as process:
        status = await until(process, last)
        assert last(status)["text"] == "the watcher ended before the hook was called"
        assert site.calls == []
