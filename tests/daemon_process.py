"""A real `vllm-watch` process for tests: started, asked over HTTP, signalled, and always ended."""

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parent.parent
# Quick looks, and patience with a machine that runs other tests at the same time.
SETTINGS = {
    "VLLM_WATCH_SCRAPE__INTERVAL_SECONDS": "0.2",
    "VLLM_WATCH_SCRAPE__TIMEOUT_SECONDS": "20",
    "VLLM_WATCH_SCRAPE__CONNECT_TIMEOUT_SECONDS": "20",
    "VLLM_WATCH_LOG__FORMAT": "json",
}
START_SECONDS = 120.0  # on a machine busy with other tests; alone it takes half a second


class DaemonProcess:
    """One process; `lines` are its log lines so far, as JSON where they are JSON."""

    def __init__(self, process):
        self.process = process
        self.url = ""
        self.lines = []
        self._serving = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        while line := await self.process.stderr.readline():
            try:
                said = json.loads(line)
            except ValueError:
                said = {"text": line.decode()}
                if found := re.search(r"\bserving\b.*\burl=(\S+)", said["text"]):
                    said |= {"event": "serving", "url": found[1]}
            self.lines.append(said)
            if said.get("event") == "serving":
                self.url = said["url"]
                self._serving.set()
        self._serving.set()

    async def serving(self):
        """Wait until it serves, or has ended."""
        await asyncio.wait_for(self._serving.wait(), START_SECONDS)

    async def get(self, path, method="GET"):
        """(status, text) of a request to it."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
            session.request(method, self.url + path) as response,
        ):
            body = await response.read()
            return response.status, body.decode(
                "utf-8", "replace"
            ) if path != "/api/v1/recording" else body

    async def bytes(self, path):
        """The body of a GET."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as response:
            return await response.read()

    async def status(self):
        """/api/v1/status."""
        return json.loads((await self.get("/api/v1/status"))[1])

    async def until(self, true, seconds=20.0, every=0.1):
        """Wait until `true(status)` holds; return that status."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            status = await self.status()
            if true(status):
                return status
            assert asyncio.get_running_loop().time() < deadline, status
            await asyncio.sleep(every)

    async def shows(self, line, seconds=20.0, every=0.1):
        """Wait until /metrics has this line; return all of it."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            _, metrics = await self.get("/metrics")
            if line in metrics.splitlines():
                return metrics
            assert asyncio.get_running_loop().time() < deadline, metrics
            await asyncio.sleep(every)

    def events(self, name):
        """The log lines of one event."""
        return [line for line in self.lines if line.get("event") == name]

    async def end(self, number=signal.SIGTERM):
        """Signal it and wait; return its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        status = await asyncio.wait_for(self.process.wait(), 15)
        await self._reader
        return status


@asynccontextmanager
async def daemon(
    *arguments,
    environ=None,
    command="run",
    listen="127.0.0.1:0",
    tree=ROOT,
    python=sys.executable,
    **more,
):
    """`vllm-watch run` (or another command that serves) with a target looked at every 0.2 seconds; the code of `tree`.

    `more` goes to the process: its user, say.
    """
    process = await asyncio.create_subprocess_exec(
        python, "-m", "vllm_watch", command, "--listen", listen, *map(str, arguments),
        cwd=tree, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        | SETTINGS | (environ or {}), **more,
    )  # fmt: skip
    running = DaemonProcess(process)
    try:
        await running.serving()
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await running._reader
