"""A real daemon that is killed and started again while something is wrong with an engine."""

import asyncio
import json
import signal
import sqlite3
import time
from contextlib import asynccontextmanager

import pytest

from tests.daemon_process import daemon
from tests.test_daemon import values
from vllm_watch.lab.live import Live
from vllm_watch.lab.stories import STORIES
from vllm_watch.state import file

PATIENCE = 60.0  # of a machine that is busy with other tests; alone each step takes some seconds


@asynccontextmanager
async def engine(story="healthy"):
    """A simulated server on a real port, with requests in it, past its warm-up: half a minute has gone by."""
    async with Live(STORIES[story].build(1)) as live:
        live._began_s -= 30.0
        live.advance()
        for _ in range(600):
            live.advance()
            if live.scene["vllm"].engines[0].num_running > 2:
                break
            await asyncio.sleep(0.05)
        yield live


def watching(live, state, **options):
    url = live.servers["vllm"].url
    return daemon("--target", f"a={url}", "--state-dir", state, **options)


def opened(status):
    return [each for target in status["targets"] for each in target["incidents"]]


async def incidents(process, query=""):
    return json.loads((await process.get("/api/v1/incidents" + query))[1])["incidents"]


def events(process, name):
    return [(each["id"], each["kind"]) for each in process.events("incident_" + name)]


async def test_an_open_incident_goes_on_under_its_id(tmp_path):
    """Killed, started, killed, started: opened once, resolved once, by whoever saw it end."""
    async with engine() as live:
        async with watching(live, tmp_path) as first:
            await first.until(makes_tokens)
            live.scene["vllm"].fault("hang")
            (incident,) = opened(await first.until(opened, seconds=PATIENCE))
            await on_disk(tmp_path, incident)
            await first.end(signal.SIGKILL)

        async with watching(live, tmp_path) as second:
            status = await second.until(opened, seconds=PATIENCE)
            assert [each["id"] for each in opened(status)] == [incident["id"]]
            (shown,) = opened(status)
            assert shown["opened_timestamp_seconds"] == incident["opened_timestamp_seconds"]
            await second.until(lambda s: s["targets"][0]["state"] == "stalled", seconds=PATIENCE)
            _, text = await second.get("/metrics")
            counted = values(text)[
                "vllm_watch_incidents_total", (("kind", "engine_stalled"), ("target", "a"))
            ]
            assert counted == 1
            assert events(second, "opened") == []
            await second.end(signal.SIGKILL)

        live.scene["vllm"].clear("hang")
        async with watching(live, tmp_path) as third:
            await third.until(lambda s: s["targets"] and not opened(s), seconds=PATIENCE)
            await third.end()
        assert events(third, "opened") == []
        assert events(third, "resolved") == [(incident["id"], "engine_stalled")]

        async with watching(live, tmp_path) as fourth:
            await fourth.until(lambda s: s["targets"])
            (past,) = await incidents(fourth, "?state=resolved")
            assert (past["id"], past["resolution"]) == (incident["id"], "healthy")
            assert past["opened_timestamp_seconds"] == incident["opened_timestamp_seconds"]


async def test_a_server_that_goes_while_nobody_looks(tmp_path):
    """It answered a moment ago, so it has gone, and is not starting for half an hour; as it may have been
    stopped together with the watcher, nobody is woken yet."""
    async with engine() as live:
        async with watching(live, tmp_path) as first:
            await first.until(makes_tokens)
            assert await first.end() == 0
        live.scene["vllm"].fault("crash")
        async with watching(live, tmp_path) as second:
            (incident,) = opened(await second.until(opened, seconds=PATIENCE))
        assert (incident["kind"], incident["cause"]) == ("engine_down", "crash")
        assert incident["severity"] == "ticket"
        assert "not scraped for a while" in json.dumps(incident["evidence"]["against"])


def makes_tokens(status):
    """Return True once progress was seen; an engine that hangs before is unknown, and no incident."""
    known = [target["signals"] for target in status["targets"] if target["signals"]]
    engines = [each for signals in known for each in signals["engines"].values()]
    return engines and all(each["last_progress_timestamp_seconds"] for each in engines)


async def on_disk(folder, incident):
    """Wait for it: what is shown is written a moment later."""
    deadline = time.monotonic() + PATIENCE
    while (incident["id"],) not in rows(folder, "SELECT id FROM incident"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def rows(folder, statement):
    with sqlite3.connect(folder / file.NAME) as connection:
        return connection.execute(statement).fetchall()


async def test_a_reload_keeps_what_is_open(tmp_path):
    """Another interval is no other target: the incident goes on, with a state folder or without."""
    config = tmp_path / "w.yaml"
    async with engine() as live:
        url = live.servers["vllm"].url
        text = "targets:\n  - {{name: a, url: '{}', slo: {{e2e_latency_seconds: {}}}}}\n"
        config.write_text(text.format(url, 5))
        async with daemon("--config", config) as process:
            await process.until(makes_tokens)
            live.scene["vllm"].fault("hang")
            (incident,) = opened(await process.until(opened, seconds=PATIENCE))
            config.write_text(text.format(url, 9))
            assert (await process.get("/-/reload", "POST"))[0] == 200
            status = await process.until(lambda s: s["targets"][0]["state"] == "stalled")
            assert [each["id"] for each in opened(status)] == [incident["id"]]
            assert len(process.events("target_added")) == 2
            assert [each["id"] for each in await incidents(process)] == [incident["id"]]
            assert [name for name, _ in events(process, "opened")] == [incident["id"]]


def garbage(path):
    path.mkdir()
    (path / file.NAME).write_text("no database " * 500)


BROKEN = {
    "a folder that cannot be made": (lambda path: path.write_text(""), "not_writable"),
    "no SQLite file": (garbage, "damaged"),
}


@pytest.mark.parametrize(("breaks", "reason"), BROKEN.values(), ids=BROKEN)
async def test_without_memory_watching_goes_on(tmp_path, breaks, reason):
    """What is wrong stands in the log with a remedy, in the metrics and in the status."""
    breaks(tmp_path / "state")
    async with engine() as live, watching(live, tmp_path / "state") as process:
        status = await process.until(makes_tokens, seconds=PATIENCE)
        _, text = await process.get("/metrics")
    assert status["store"]["errors"][reason] >= 1
    assert values(text)["vllm_watch_store_errors_total", (("reason", reason),)] >= 1
    (said, *_) = process.events("state_not_kept")
    assert (said["reason"], bool(said["cause"]), bool(said["remedy"])) == (reason, True, True)


async def test_two_watchers_with_one_folder(tmp_path):
    """The second watches as well, without memory, and says why; the first is not disturbed."""
    async with engine() as live, watching(live, tmp_path) as first:
        await first.until(lambda s: s["store"]["last_success_timestamp_seconds"])
        async with watching(live, tmp_path) as second:
            status = await second.until(makes_tokens, seconds=PATIENCE)
            assert status["store"]["errors"] == {"refused": 1}
            assert "another vllm-watch" in status["store"]["because"]
        assert (await first.status())["store"]["ok"]


async def test_what_was_learnt_is_kept_as_it_stops(tmp_path):
    """An orderly end writes all; the next process begins with it."""
    async with engine() as live:
        async with watching(live, tmp_path) as first:
            await first.until(makes_tokens)
            began = time.time()
            assert await first.end() == 0
        ((state, saved_t),) = rows(tmp_path, "SELECT state, saved_t FROM watch WHERE target = 'a'")
        assert saved_t >= began
        assert "throughput_collapse" in json.loads(state)["detectors"]
        async with watching(live, tmp_path) as second:
            await second.until(makes_tokens)
        (said,) = (e for e in second.events("target_remembered") if e["target"] == "a")
        assert (said["incidents"], said["away_seconds"] < 60) == (0, True)
