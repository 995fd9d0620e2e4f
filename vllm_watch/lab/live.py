"""Run a scene (scene.py) in real time, with one port per server."""

import asyncio
import time

from vllm_watch.lab.scene import Scene
from vllm_watch.lab.server import LabServer
from vllm_watch.samples.target import Target

# Simulated answers and faults become visible within 1/20 of the shortest scrape interval.
_TICK_SECONDS = 0.05


class Live:
    """Runs a scene at `speed` times real time. A scene with a past `epoch` first catches up to the present."""

    def __init__(self, scene: Scene, speed: float = 1.0, host: str = "127.0.0.1") -> None:
        self.scene = scene
        self.speed = speed
        self.servers = {
            name: LabServer(vllm, self.advance, host) for name, vllm in scene.servers.items()
        }
        self._began_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Live":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> list[Target]:
        """Open all ports. Raises ServeError if one is taken."""
        if not self.scene.epoch:
            self.scene.begin_at(time.time())
        self._began_s = time.monotonic() - (time.time() - self.scene.epoch) / self.speed
        self.advance()
        try:
            for server in self.servers.values():
                await server.start()
        except BaseException:
            await self.stop()
            raise
        self._task = asyncio.create_task(self._keep_time(), name="lab")
        return [
            Target(name=name, url=server.url, group=server.vllm.group)
            for name, server in self.servers.items()
        ]

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        for server in self.servers.values():
            await server.stop()

    def advance(self) -> float:
        self.scene.advance((time.monotonic() - self._began_s) * self.speed)
        return self.scene.t

    def unix_time(self) -> float:
        return self.scene.epoch + self.advance()

    async def _keep_time(self) -> None:
        while True:
            self.advance()
            for server in self.servers.values():
                await server.follow()
            await asyncio.sleep(_TICK_SECONDS)
