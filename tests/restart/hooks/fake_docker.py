"""Docker's Engine API on a unix socket, with what containers a test gives it.

Source: docs.docker.com/engine/api (ContainerInspect, ContainerRestart): 204, 304, 404, 409, 500 with a message.
"""

import asyncio
from contextlib import asynccontextmanager

from aiohttp import web

ID = "d33aaeb5ef45c4bb1ad2550adbb5202f7ff8c3b2d7539bc9b4a49de68756762a"


class Daemon:
    """What the daemon has, and what it was asked."""

    def __init__(self):
        self.asked = []
        self.behaviour = None  # async (request) -> response, in place of a restart
        self.container = {
            "Id": ID,
            "Name": "/vllm",
            "State": {
                "Status": "running", "Running": True, "Pid": 4711,
                "StartedAt": "2026-11-21T11:04:02.942836926Z",
            },
            "HostConfig": {"RestartPolicy": {"Name": "unless-stopped", "MaximumRetryCount": 0}},
        }  # fmt: skip

    async def inspect(self, request):
        name = request.match_info["name"]
        if name not in (ID, ID[:12], "vllm"):
            return answer(404, f"No such container: {name}")
        return web.json_response(self.container)

    async def restart(self, request):
        self.asked.append(request.path_qs)
        if self.behaviour is not None:
            return await self.behaviour(request)
        if request.match_info["name"] != ID:
            return answer(404, "No such container")
        return web.Response(status=204)


def answer(status, message):
    """An error as the daemon says it."""
    return web.json_response({"message": message}, status=status)


@asynccontextmanager
async def docker(path):
    """A daemon that listens at `path`."""
    daemon = Daemon()
    app = web.Application()
    app.router.add_get("/containers/{name}/json", daemon.inspect)
    app.router.add_post("/containers/{name}/restart", daemon.restart)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield daemon
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
