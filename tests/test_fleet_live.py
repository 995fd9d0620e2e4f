"""A network that swallows everything, before a real daemon and six simulated engines."""

import asyncio
import json
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

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
async def engines():
    """Healthy, idle engines behind a network."""
    live, network = Live(Scene([SimulatedVllm(name) for name in NAMES])), Network()
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
