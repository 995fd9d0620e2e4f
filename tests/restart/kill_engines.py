"""Engines that are restarted by every kind of hook, and what stands between: each call is noted with its time.

The services are those that the tests of the hooks use: a real program, a real HTTP server and real signals; Docker's Engine API,
systemctl, the kubelet's probe and the API server are played (fake_docker.py, fake_systemctl.py, fake_pods.py, and a task
that asks as the probe does).
"""

import asyncio
import json
import os
import signal
import time
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.kubernetes_api import NAMESPACE, certified
from tests.ports import free_port
from tests.restart.hooks.calls import systemctl
from tests.restart.hooks.fake_docker import docker
from tests.restart.hooks.fake_pods import FakePods, pod
from tests.restart.hooks.test_systemd import RUNNING
from tests.restart.site import answers, wait_for

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.02
START_SECONDS, START_TRIES = 15.0, 6

COMMAND = """#!/bin/sh
echo "$VLLM_WATCH_ATTEMPT_ID $(date +%s.%N)" >> {folder}/calls
sleep 0.3
"""


class Engine:
    """One engine: it falls ill when it is told to, heals by itself, and is restarted by whoever is asked to."""

    kind = "command"

    def __init__(self, folder, forks):
        self.hook, self.target = {}, {}  # their settings
        self.folder, self.name, self.port = folder, self.kind, free_port()
        self.well = []  # [since, until]: when it served, and nobody was to restart it
        self.calls = []  # (Unix seconds, attempt id or None)
        self.healing = False
        self.watcher_url = "http://127.0.0.1:1"  # of the present run
        self._forks = forks
        self._tasks = set()
        self._services = AsyncExitStack()
        folder.mkdir()

    # --- the process

    def start(self):
        self._forks.tell(f"{self.folder} {self.port}")

    @property
    def pids(self):
        path = self.folder / "starts"
        return [int(each) for each in path.read_text().split()] if path.exists() else []

    @property
    def pid(self):
        """Of the one that has the port; another that came too late for it has ended."""
        return int((self.folder / "pid").read_text())

    def end(self):
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def answers(self):
        return answers(self.port)

    # --- what befalls it

    def falls_ill(self):
        for each in self.well:
            each[1] = min(each[1], time.time())
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    async def heals(self):
        """Another process takes its place; whoever restarts it meanwhile does the same."""
        self.healing = True
        try:
            for _ in range(START_TRIES):
                self.end()
                self.start()
                if await asyncio.to_thread(self._comes_up):
                    break
            else:
                raise AssertionError(f"{self.name} does not come up")
            await self.replaced()
            self.well.append([time.time(), float("inf")])
        finally:
            self.healing = False

    def _comes_up(self):
        """A hook that was begun before may end the new one, too, or another may have its port for a moment."""
        with suppress(AssertionError):
            wait_for(self.answers, START_SECONDS)
            return True
        return False

    def called(self, t, attempt=None):
        """Somebody was asked to restart it, and does."""
        self.calls.append((t, attempt))
        if not self.healing:
            self.end()
            self.start()
            self.follow(self._serves_again())

    async def _serves_again(self):
        await asyncio.to_thread(wait_for, self.answers, 60.0)
        self.well.append([time.time(), float("inf")])

    async def replaced(self):
        """Whoever looks after its process sees a new one."""

    # --- the service

    async def open(self):
        self.script = self.folder / "restart"
        self.script.write_text(COMMAND.format(folder=self.folder))
        self.script.chmod(0o755)
        self.hook = {"argv": [str(self.script)]}
        self.follow(self._calls_in("calls"))

    async def close(self):
        broken = [each for each in self._tasks if each.done() and each.exception()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.end()
        await self._services.aclose()
        await asyncio.gather(*broken)  # one that broke restarts nothing, and every rule would hold

    def follow(self, work):
        self._tasks.add(asyncio.create_task(work))

    async def lines(self, name):
        """Each line of a file, soon after it is written."""
        done = 0
        while True:
            path = self.folder / name
            found = path.read_text().splitlines() if path.exists() else []
            for line in found[done:]:
                yield line
            done = len(found)
            await asyncio.sleep(LOOK_SECONDS)

    async def _calls_in(self, name):
        async for line in self.lines(name):
            attempt, t = line.split()
            self.called(float(t), attempt)


class Webhook(Engine):
    kind = "webhook"

    async def open(self):
        async def take(request):
            self.called(time.time(), request.headers["X-Vllm-Watch-Attempt"])
            await asyncio.sleep(0.3)
            return web.Response()

        app = web.Application()
        app.router.add_post("/", take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self._services.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.hook = {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/"}


STARTUP_SECONDS = 3.0
"""A kill names its process by its start, to two seconds: no kubelet asks the next one within them."""


class Gate(Engine):
    """The probe of its container asks the watcher; the kubelet ends what fails, and starts it again."""

    kind = "gate"

    async def open(self):
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0))
        self._session = await self._services.enter_async_context(session)
        self.follow(self._probe())

    async def _asked(self, started_t):
        """Return the gate's answer, without the word that it repeats."""
        asked = {"target": self.name, "started": f"{started_t:.2f}", "asked": "a1"}
        async with self._session.get(f"{self.watcher_url}/gate/liveness", params=asked) as response:
            *said, repeated = (await response.text()).split()
        return said if repeated == "a1" else []

    async def _probe(self):
        failing = None  # the process whose probe failed last: it is ended once, however often it is asked until it has gone
        while True:
            pid, failed = None, False
            with suppress(aiohttp.ClientError, OSError, ValueError):
                pid = self.pid
                started_t = _created_t(pid)
                if time.time() - started_t < STARTUP_SECONDS:
                    raise ValueError("its startup probe is still asked, and not this one")
                word, start = await self._asked(started_t)
                failed = word == "kill" and abs(float(start) - started_t) <= 2.0
            if failed and failing != pid:
                self.called(time.time())
            failing = pid if failed else None
            await asyncio.sleep(0.1)


class Systemd(Engine):
    kind = "systemd"

    async def open(self):
        self.hook = {"unit": "vllm.service"}
        systemctl(self.folder, {})
        await self.replaced()
        self.follow(self._restarts())

    async def replaced(self):
        unit = RUNNING | {"InvocationID": os.urandom(16).hex()}
        new = self.folder / "new.json"
        new.write_text(json.dumps({"units": {"vllm.service": unit}}))
        new.rename(self.folder / "systemd.json")

    async def _restarts(self):
        async for line in self.lines("asked"):
            if "restart" in line.split():
                self.called(time.time())
                await self.replaced()


class Docker(Engine):
    kind = "docker"

    async def open(self):
        path = self.folder / "docker.sock"
        self._container = await self._services.enter_async_context(docker(path))
        self.hook = {"container": "vllm", "socket": str(path)}

        async def restart(_):
            self.called(time.time())
            await asyncio.sleep(0.3)
            await self.replaced()
            return web.Response(status=204)

        self._container.behaviour = restart
        await self.replaced()

    async def replaced(self):
        with suppress(OSError, ValueError):
            began = datetime.fromtimestamp(_created_t(self.pid), UTC)
            self._container.container["State"]["StartedAt"] = f"{began:%Y-%m-%dT%H:%M:%S.%fZ}"


class Pods(FakePods):
    """An eviction is a call."""

    def end(self, name):
        self.engine.called(time.time())
        super().end(name)


class Kubernetes(Engine):
    kind = "kubernetes"

    async def open(self):
        self.target = {"pod": "llama-0", "namespace": NAMESPACE}
        account = self.folder / "account"
        _, context = certified(account)
        server = Pods()
        server.engine = self
        await self._services.enter_async_context(server.running(context))
        server.add("pods", pod())
        self.account, self.environ = account, server.account(account) | {"HOSTNAME": "w-0"}


KINDS = (Engine, Webhook, Gate, Systemd, Docker, Kubernetes)


def _created_t(pid):
    """When a process that runs began, in Unix seconds."""
    state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if state in "ZX":
        raise ProcessLookupError(pid)
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.time() - since_boot_s + float(rest[18]) / os.sysconf("SC_CLK_TCK")
