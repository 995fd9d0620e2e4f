"""A person's yes: it outlives the watcher that answered it, serves for one call, and ends with the trouble."""

import signal

import pytest

from tests.daemon_process import daemon
from tests.restart.site import ask, is_up
from tests.restart.station import station
from tests.restart.test_daemon_restarts import ill, last, until, waiting


async def test_a_yes_outlives_the_watcher(site):
    """It waited for the end of a pause; the next watcher asks nobody again, and calls the hook once."""
    path = site.configure("approve")
    async with daemon("--config", path) as process:
        await until(process, is_up)
        incident = await ill(process, site)
        await until(process, waiting)
        await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 0.15})
        code, said = await ask(process, f"/api/v1/incidents/{incident}/approve")
        assert (code, said["text"][:9]) == (202, "approved;")
        await process.end(signal.SIGKILL)
    async with daemon("--config", path) as process:
        status = await until(process, lambda s: last(s).get("state") == "helped")
        assert (last(status)["actor"], last(status)["incident_id"]) == ("anna", incident)
        assert len(site.calls) == 1


async def approved(one, incident):
    """It waits: restarts are paused."""
    assert (await one.ask("/api/v1/pause", {"reason": "x", "minutes": 60}))[0] == 200
    await one.decided()
    code, said = await one.ask(f"/api/v1/incidents/{incident}/approve")
    assert code == 202, said


async def holds(one):
    return [name for name in await one.journal.standing() if name.startswith("approval ")]


async def test_a_yes_ends_with_the_trouble(tmp_path):
    """What comes back asks again."""
    async with station(tmp_path) as one:
        incident = one.incident()
        await approved(one, incident)
        assert await holds(one) == [f"approval {incident} a"]
        one.incident("resolved", advised=False)
        await one.restarts._check_incidents()
        assert await holds(one) == []
        one.incident()
        (waiting,) = await one.decided()
        assert waiting.request.approved_by is None


async def test_a_yes_that_was_refused_does_not_hold(tmp_path):
    """Only what was answered with 202 does."""
    async with station(tmp_path) as one:
        incident = one.incident()
        await one.decided()
        assert (await one.ask(f"/api/v1/incidents/{incident}/silence", {"reason": "x"}))[0] == 200
        one.look("a", "starting")
        code, _ = await one.ask(f"/api/v1/incidents/{incident}/approve")
        assert code == 409
        await one.restarts._check_incidents()
        assert await holds(one) == []


REVOKED = {
    "its file is gone": lambda token: token.unlink(),
    "it is another": lambda token: token.write_text("another-token-of-enough-characters"),
}


@pytest.mark.parametrize("revoke", REVOKED.values(), ids=REVOKED)
async def test_a_yes_ends_with_its_token(tmp_path, revoke):
    """It waits for a pause to end; who said it may say nothing any more."""
    async with station(tmp_path) as one:
        await approved(one, one.incident())
        revoke(one.token_file)
        await one.restarts._controls.set_pause(None)
        one.restarts.dispatcher.wake()
        plan = await one.shown(lambda plan: plan["waiting"][0]["gate"] == "approval")
        assert plan["waiting"][0]["approved_by"] is None
        assert not (tmp_path / "calls").exists()
