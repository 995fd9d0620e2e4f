"""The same with a real daemon over real engines: what is done to an engine, to the configuration or to the watcher in the drain."""

import asyncio
import signal
import time
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
import yaml

from tests.daemon_process import daemon
from tests.restart.site import TOKEN, Site, answers, ask, is_up, plan, wait_for
from tests.restart.test_alertmanager import alert, payload
from tests.restart.test_daemon_restarts import ill, last, until, waiting
from tests.restart.test_self_healing import LOOKS_SECONDS
from tests.support.test_service_manager import systemd

ANOTHER = (
    "another process serves since",
    "the process to be restarted no longer answers",
)
"""As the next one serves, or is on its way."""


@pytest.fixture
def site(tmp_path):
    with Site(tmp_path) as running:
        yield running


def changed(path, change):
    """Write the configuration anew, with this change."""
    config = yaml.safe_load(path.read_text())
    change(config)
    path.write_text(yaml.safe_dump(config))


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


def scraped_t(status):
    return status["targets"][0]["signals"]["t"]


def under_way(status):
    return plan(status).get("under_way") or {}


def drains(status):
    return "waiting at most" in under_way(status).get("text", "")


def has_request(status):
    (target,) = status["targets"]
    engines = (target["signals"] or {}).get("engines") or {}
    return any(each["requests_running"] for each in engines.values())


async def asked_by_a_person(process):
    return await ask(process, "/api/v1/targets/a/restart", {"reason": "slow"})


async def asked_by_an_alert(process):
    return await ask(process, "/api/v1/alertmanager", payload(alert()))


@asynccontextmanager
async def draining(site, who=asked_by_a_person):
    """A daemon whose restart waits for a request in hand."""
    path = site.configure(
        "auto", triggers=["incident", "alertmanager"], drain={"deadline_seconds": 60}
    )
    async with daemon("--config", path) as process, busy(site):
        await until(process, lambda s: is_up(s) and has_request(s))
        code, said = await who(process)
        assert code in (200, 202), said
        await until(process, drains)
        yield process, path


@pytest.mark.parametrize("who", [asked_by_a_person, asked_by_an_alert])
async def test_an_engine_that_is_replaced_in_the_drain_is_left_alone(site, who):
    """The hook is a command, which looks at nothing itself."""
    async with draining(site, who) as (process, _):
        site.heal()
        status = await until(process, lambda s: last(s) or None)
        assert last(status)["state"] == "cancelled"
        assert last(status)["text"].startswith(ANOTHER)
        await asyncio.sleep(LOOKS_SECONDS)
        assert site.calls == []


def moved(config):
    config["targets"][0]["url"] = "http://localhost:1"


def gone(config):
    config["targets"][0]["name"] = "b"


def mended(config):
    config["hooks"]["command"][0]["argv"].append("--mended")


RELOADS = {
    "its URL": (moved, "a", "a is now a different target: http://localhost:1, not http"),
    "its name": (gone, "b", "a is no longer watched"),
    "its hook": (mended, "a", "the hook of a has changed"),
}


@pytest.mark.parametrize(("change", "name", "text"), RELOADS.values(), ids=RELOADS)
async def test_a_reload_in_the_drain_stops_it(site, change, name, text):
    """Whose URL, name or hook it changes is not restarted as it was."""
    async with draining(site) as (process, path):
        changed(path, change)
        assert (await process.get("/-/reload", "POST"))[0] == 200
        await until(process, lambda s: any(each["name"] == name for each in s["targets"]))
        (ended,) = await events(process, "restart_ended")
        assert ended["outcome"] == "cancelled"
        assert ended["because"].startswith(text)
        assert site.calls == []


async def events(process, name):
    """The lines of the log with this name, once there is one."""
    async with asyncio.timeout(40):
        while not (found := process.events(name)):
            await asyncio.sleep(0.05)
    return found


async def test_a_resume_before_the_next_scrape_does_not_restart_the_next_engine(site):
    """Incident, pause, another engine, and the pause ends: the last scrape is of the one before."""
    every = {"VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "4"}
    async with daemon("--config", site.configure("auto"), environ=every) as process:
        await until(process, is_up)
        await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 30})
        await ill(process, site)
        status = await until(process, lambda s: waiting(s) and waiting(s)[0]["gate"] == "pause")
        before_t = scraped_t(status)
        await until(process, lambda s: scraped_t(s) > before_t)
        site.heal()
        assert (await ask(process, "/api/v1/resume"))[0] == 200
        await asyncio.sleep(LOOKS_SECONDS + 4)
        assert site.calls == []


async def test_twins_that_began_in_the_same_tick_are_two(site, tmp_path):
    """Both are ill: whichever is restarted, the other would be left, and it serves nobody."""
    born, twin = f"{int(time.time())}", tmp_path / "twin"
    (site.folder / "born").write_text(born)
    twin.mkdir()
    (twin / "born").write_text(born)
    site.heal()
    path = site.configure(
        "auto", peers="watched", lock={"kind": "file", "path": str(tmp_path / "locks")}
    )
    with Site(twin) as other:
        second = {"name": "b", "url": f"http://127.0.0.1:{other.port}"}
        changed(path, lambda config: config["targets"].append(second))
        changed(path, lambda config: [each.update(group="g") for each in config["targets"]])
        async with daemon("--config", path) as process:
            await until(process, lambda s: is_up(s) and is_up(s, "b"))
            await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 30})
            for each in (site, other):
                each.send(signal.SIGUSR1)
            await until(process, lambda s: waiting(s) and plan(s, "b")["waiting"])
            assert (await ask(process, "/api/v1/resume"))[0] == 200
            status = await until(process, lambda s: waiting(s) and waiting(s)[0]["gate"] == "peers")
            assert waiting(status)[0]["text"].startswith("0 of 2 in the group would stay healthy")
            assert site.calls == []


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
    halfway, address = site.folder / "halfway", str(site.folder / "notify")
    with systemd(address) as bound:
        await stopped_halfway(path, halfway, address)
        assert "EXTEND_TIMEOUT_USEC=73000000" in bound.waiting()
    await asyncio.to_thread(wait_for, lambda: len(site.lines("starts")) == 2)
    async with daemon("--config", path) as process:
        status = await until(process, lambda s: last(s).get("state") == "helped")
        assert len(site.calls) == 1, last(status)


async def stopped_halfway(path, halfway, address):
    """One run of the watcher, which is told to end while its hook waits."""
    async with daemon("--config", path, environ={"NOTIFY_SOCKET": address}) as process:
        await until(process, is_up)
        await asked_by_a_person(process)
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
    """SIGTERM in the drain: the hook has not begun, and does not."""
    async with draining(site) as (process, path):
        assert await process.end() == 0
    async with daemon("--config", path) as process:
        status = await until(process, last)
        assert last(status)["text"] == "the watcher ended before the hook was called"
        assert site.calls == []


REVOKED = {
    "its file is gone": lambda site: site.token_file.unlink(),
    "it is another": lambda site: site.token_file.write_text("another-token-of-enough-characters"),
}


@pytest.mark.parametrize("revoke", REVOKED.values(), ids=REVOKED)
async def test_a_yes_ends_with_its_token(site, revoke):
    """It waits for a pause to end; who said it may say nothing any more."""
    path = site.configure("approve")
    ben = site.folder / "ben"
    ben.write_text("b" + TOKEN)
    ben.chmod(0o600)
    changed(path, lambda config: config["api"]["tokens"].append({"name": "ben", "file": str(ben)}))
    async with daemon("--config", path) as process:
        await until(process, is_up)
        await ask(process, "/api/v1/pause", {"reason": "a demo", "minutes": 30})
        incident = await ill(process, site)
        await until(process, waiting)
        code, said = await ask(process, f"/api/v1/incidents/{incident}/approve")
        assert (code, said["text"][:8]) == (202, "approved"), said
        revoke(site)
        assert (await ask(process, "/api/v1/resume", token="b" + TOKEN))[0] == 200
        status = await until(process, lambda s: waiting(s) and waiting(s)[0]["gate"] == "approval")
        assert waiting(status)[0]["approved_by"] is None
        assert site.calls == []


async def test_an_engine_that_comes_back_with_another_model_is_not_helped(site):
    """It serves, and nobody gets what they ask for."""
    async with daemon("--config", site.configure("auto")) as process:
        await until(process, is_up)
        (site.folder / "model").write_text("example/model-70b")
        await asked_by_a_person(process)
        status = await until(process, last)
        assert last(status)["state"] == "did_not_help"
        assert last(status)["text"] == (
            "it came back with another model: example/model-70b, not example/model-8b"
        )
