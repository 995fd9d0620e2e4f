"""The whole way, with real processes: an engine falls ill, and is restarted as far as was allowed."""

import asyncio
import signal

import pytest

from tests.daemon_process import daemon
from tests.restart.site import Site, ask, incidents, is_up, plan

PATIENCE_SECONDS = 40.0  # on a machine busy with other tests; alone each step takes two seconds


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as running:
        yield running


def waiting(status):
    return plan(status).get("waiting") or []


def last(status):
    return plan(status).get("last") or {}


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


async def test_observe_says_it_and_does_nothing(site):
    """A dry run is on record, once, and the hook was never called."""
    async with daemon("--config", site.configure("observe")) as process:
        incident = await ill(process, site)
        status = await until(process, last)
        assert last(status)["state"] == "dry_run"
        assert last(status)["incident_id"] == incident
        await asyncio.sleep(1)
        _, metrics = await process.get("/metrics")
        assert (
            'vllm_watch_restarts_total{target="a",trigger="incident",outcome="dry_run"} 1'
            in metrics
        )
        assert site.calls == []


async def test_auto_restarts_by_itself_but_not_while_it_is_paused(site):
    """Paused, it says who paused it and waits; resumed, it acts."""
    async with daemon("--config", site.configure("auto")) as process:
        await until(process, is_up)
        code, answer = await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 30})
        assert code == 200, answer
        await ill(process, site)
        status = await until(process, lambda s: waiting(s) and waiting(s)[0]["verdict"])
        assert waiting(status)[0]["gate"] == "pause"
        assert waiting(status)[0]["text"] == "paused by anna: a demo"
        assert status["restarts"]["paused"]["actor"] == "anna"
        assert site.calls == []
        assert (await ask(process, "/api/v1/resume"))[0] == 200
        status = await until(process, last)
        assert last(status)["state"] == "helped", last(status)
        assert len(site.calls) == 1


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
        await until(process, lambda s: (plan(s).get("under_way") or {}).get("state") == state)
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
