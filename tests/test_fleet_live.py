"""A network that swallows everything, before a real daemon and simulated engines."""

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import yaml

from tests.daemon_process import daemon
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm

ENVIRON = {
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "1",
    "VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "2",
    "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "2",
}
NAMES = tuple(f"engine-{number}" for number in range(6))
PATIENCE_SECONDS = 120.0


class Network:
    """A relay before each server: it passes bytes on, or takes connections and swallows what they say."""

    def __init__(self):
        self.swallowed = set()  # names of targets
        self.urls = {}
        self._connections = {}
        self._servers = []

    async def relay(self, name, url):
        there = urlsplit(url)

        async def serve(reader, writer):
            self._connections.setdefault(name, set()).add(writer)
            try:
                if name in self.swallowed:
                    await reader.read()
                    return
                upstream = await asyncio.open_connection(there.hostname, there.port)
                self._connections[name].add(upstream[1])
                await asyncio.gather(
                    self._pass(name, reader, upstream[1]), self._pass(name, upstream[0], writer)
                )
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        self.urls[name] = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pass(self, name, reader, writer):
        while data := await reader.read(1 << 16):
            if name not in self.swallowed:
                writer.write(data)
                await writer.drain()
        writer.close()

    def close(self):
        for server in self._servers:
            server.close()
        for writers in self._connections.values():
            for writer in writers:
                writer.transport.abort()


@asynccontextmanager
async def engines(count=6):
    """Healthy, idle engines behind a network."""
    live, network = Live(Scene([SimulatedVllm(name) for name in NAMES[:count]])), Network()
    for target in await live.start():
        await network.relay(target.name, target.url)
    try:
        yield network
    finally:
        network.close()
        await live.stop()


def up(status):
    return [t["name"] for t in status["targets"] if t["signals"] and t["signals"]["up"]]


def of(process, event):
    return [line for line in process.events(event) if line["kind"] == "engine_down"]


async def incidents(process, state="open"):

    said = json.loads((await process.get(f"/api/v1/incidents?state={state}"))[1])["incidents"]
    return {each["target"]: each for each in said}


async def until(process, true):
    """Wait until `true(open incidents)`; return them."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true(found := await incidents(process)):
            await asyncio.sleep(0.3)
    return found


async def test_a_network_that_swallows_everything_is_one_page_and_who_stays_away_another():
    """Six engines fall silent; five come back, and the sixth is then told by itself."""
    async with engines() as network:
        arguments = [
            part for name, url in network.urls.items() for part in ("--target", f"{name}={url}")
        ]
        async with daemon(*arguments, environ=ENVIRON) as process:
            await process.until(lambda status: len(up(status)) == 6, PATIENCE_SECONDS)
            network.swallowed.update(NAMES)
            found = await until(process, lambda found: found.keys() == {"vllm-watch", *NAMES})
            _, metrics = await process.get("/metrics")
            common = found.pop("vllm-watch")
            assert (common["severity"], common["cause"]) == ("page", "unreachable")
            assert {each["severity"] for each in found.values()} == {"ticket"}
            assert not any(each["restart_advised"] for each in found.values())
            assert all(common["id"] in each["related"] for each in found.values())
            assert (
                'vllm_watch_incident_open{target="vllm-watch",engine="",kind="engine_down",cause="unreachable",severity="page"} 1'
                in metrics
            )

            network.swallowed.intersection_update({"engine-5"})
            found = await until(
                process,
                lambda found: (
                    found.keys() == {"engine-5"} and found["engine-5"]["severity"] == "page"
                ),
            )
            assert found["engine-5"]["related"] == [common["id"]]
            ended = await incidents(process, "resolved")
            assert {each["resolution"] for each in ended.values()} == {"healthy"}

    paged = [
        line["target"] for line in of(process, "incident_opened") if line["severity"] == "page"
    ]
    assert paged == ["vllm-watch"]


def may_restart(folder, urls):
    """The configuration of a daemon that restarts each of these by itself, at its first advice; and its hook's file."""
    calls, script = folder / "calls", folder / "hook"
    script.write_text(f'#!/bin/sh\necho "$VLLM_WATCH_TARGET" >> {calls}\n')
    script.chmod(0o755)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({
        "state_dir": str(folder / "state"),
        "targets": [{"name": name, "url": url, "group": name} for name, url in urls.items()],
        "gpu": {"enabled": "off"},
        "detectors": {"engine_down": {
            "silent_seconds": 1, "silent_busy_seconds": 1, "silent_page_seconds": 2, "advise_seconds": 3,
        }},
        "restart": {
            "mode": "auto", "hook": "site", "peers": "none", "new_version_seconds": 0, "drain": {"deadline_seconds": 1},
        },
        "hooks": {"command": [{"name": "site", "argv": [str(script)]}]},
    }))  # fmt: skip
    return path, calls


def silent_seconds(found):
    """For how long the incident that was found last has been silent."""
    single = [each for name, each in found.items() if name != "vllm-watch"]
    return min((each["evidence"]["for"][0]["value"] for each in single), default=0.0)


async def test_who_restarts_the_watcher_in_an_outage_restarts_no_engine(tmp_path):
    """Four engines, each alone in its group, fall silent, and the watcher is killed: one page, as before, and no hook.

    When three are back, the fourth is paged and restarted.
    """
    names = NAMES[:4]

    def held(found):
        return found.keys() == {"vllm-watch", *names} and {
            each["severity"] for name, each in found.items() if name != "vllm-watch"
        } == {"ticket"}

    async with engines(4) as network:
        path, calls = may_restart(tmp_path, network.urls)
        async with daemon("--config", path, environ=ENVIRON) as process:
            await process.until(lambda status: len(up(status)) == 4, PATIENCE_SECONDS)
            network.swallowed.update(names)
            before = await until(process, lambda found: held(found) and silent_seconds(found) > 5)
            await process.end(signal.SIGKILL)
        async with daemon("--config", path, environ=ENVIRON) as process:
            enough = silent_seconds(before) + 25
            after = await until(
                process, lambda found: calls.exists() or silent_seconds(found) > enough
            )
            assert not calls.exists(), calls.read_text()
            assert held(after)
            assert {n: e["id"] for n, e in after.items()} == {n: e["id"] for n, e in before.items()}
            assert [e["target"] for e in of(process, "incident_opened")] == []

            network.swallowed.intersection_update({names[3]})
            await until(
                process, lambda found: found.get(names[3], after[names[3]])["severity"] == "page"
            )
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not calls.exists():
                    await asyncio.sleep(0.3)
            assert calls.read_text().split() == [names[3]]
