"""Several engines on one GPU host, from the driver to the hook: a GPU's fault is the affair of its own engines."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import pytest
import yaml

from tests.daemon_process import ROOT, daemon
from tests.nvml_stub import GIB, NvmlStub, h200

SERVER = ROOT / "tests" / "restart" / "gpu_engine_server.py"
PATIENCE_SECONDS = 60.0
LOOKS = 25  # at 0.2 s: more than a detector of crashes, and the dispatcher, need


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Host:
    """Engines, each on a GPU of its own, a driver, and a configuration that restarts by a script."""

    def __init__(self, folder, count):
        self.folder = folder
        self.names = [f"e{number}" for number in range(count)]
        self.ports = [_free_port() for _ in self.names]
        self.processes = []
        self.driver = NvmlStub(folder)

    def __enter__(self):
        for name, port in zip(self.names, self.ports, strict=True):
            (self.folder / name).mkdir()
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, SERVER, self.folder / name, "vllm", "serve", "--port", str(port)],
                    cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
            )  # fmt: skip
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for name in self.names:
            with suppress(OSError, ValueError):
                os.kill(int((self.folder / name / "core").read_text()), signal.SIGKILL)

    async def serving(self):
        """Wait until each has a core; tell the driver who holds what."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all((self.folder / name / "core").exists() for name in self.names):
                await asyncio.sleep(0.1)
        self.cores = [int((self.folder / name / "core").read_text()) for name in self.names]
        self.gpus = {n: h200(n, {core: 60 * GIB}) for n, core in enumerate(self.cores)}
        self.driver.set_state(gpus=self.gpus)

    async def end(self, number):
        """One engine is stopped by its owner, and its core with it; the driver shows nobody on its GPU."""
        self.processes[number].terminate()
        await asyncio.to_thread(self.processes[number].wait, 20)
        self.gpus[number] = h200(number)

    def configure(self):
        quick = {
            "cooldown_seconds": 1, "cooldown_load_times": 0, "budget_per_hour": 5, "budget_per_day": 5,
            "new_version_seconds": 0, "peers": "none", "drain": {"deadline_seconds": 1},
            "verify": {"start_seconds": 5, "settle_seconds": 1},
        }  # fmt: skip
        script = self.folder / "restart"
        script.write_text(
            f'#!/bin/sh\necho "$VLLM_WATCH_TARGET $VLLM_WATCH_KIND" >> {self.folder}/calls\n'
        )
        script.chmod(0o755)
        config = {
            "state_dir": str(self.folder / "state"),
            "targets": [
                {"name": name, "url": f"http://127.0.0.1:{port}"}
                for name, port in zip(self.names, self.ports, strict=True)
            ],
            "gpu": {"interval_seconds": 0.5},
            "scrape": {"health_interval_seconds": 0.5},
            "restart": {"mode": "auto", "hook": "script", **quick},
            "hooks": {"command": [{"name": "script", "argv": [str(script)]}]},
        }  # fmt: skip
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    @property
    def calls(self):
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def watcher(self):
        return daemon("--config", self.configure(), environ=self.driver.env())


@pytest.fixture
def host(tmp_path, request):
    with Host(tmp_path, request.param) as running:
        yield running


def incidents(status, kind):
    """Of the host and of all targets: (target, cause, severity)."""
    entries = [
        *status["host"]["incidents"],
        *(i for t in status["targets"] for i in t["incidents"]),
    ]
    return [each for each in entries if each["kind"] == kind]


def state_of(status, name):
    return next(each["state"] for each in status["targets"] if each["name"] == name)


def all_serve(status):
    seen = [each["signals"] for each in status["targets"]]
    return bool(seen) and all(signals and signals["up"] for signals in seen)


async def looks(watcher, count=LOOKS):
    """Until so many more looks at each target have ended."""

    def calls(status):
        return {each["name"]: each["sources"]["metrics"]["calls"] for each in status["targets"]}

    began = calls(await watcher.status())
    return await watcher.until(
        lambda now: all(calls(now)[name] >= began[name] + count for name in began), PATIENCE_SECONDS
    )


async def users_known(watcher):
    """Whose GPU is whose is looked for with the first looks; what the page says of a holder names no target."""
    await watcher.until(all_serve, PATIENCE_SECONDS)
    await looks(watcher, 10)


@pytest.mark.parametrize("host", [2], indirect=True)
async def test_an_xid_of_one_engines_gpu_restarts_no_other_engine(host):
    """e1 was stopped by its owner; the program's own error on e0's GPU is not why, and e0 has survived it."""
    await host.serving()
    async with host.watcher as watcher:
        await users_known(watcher)
        await host.end(1)
        host.driver.set_state(gpus=host.gpus)
        await watcher.until(lambda now: state_of(now, "e1") == "down", PATIENCE_SECONDS)
        host.driver.xid(0, 31)
        status = await watcher.until(lambda now: incidents(now, "gpu_fault"), PATIENCE_SECONDS)
        (fault,) = incidents(status, "gpu_fault")
        assert (fault["target"].partition(":")[0], fault["concerns"]) == ("host", ["e0"])
        assert not fault["restart_advised"]
        await looks(watcher)
        assert host.calls == []


@pytest.mark.parametrize("host", [2], indirect=True)
async def test_an_engine_that_died_of_its_own_xid_is_restarted(host):
    """The other side: its own error ended it, and a restart is known to help. The other engine is left alone."""
    await host.serving()
    async with host.watcher as watcher:
        await users_known(watcher)
        host.driver.xid(0, 31)
        await watcher.until(lambda now: incidents(now, "gpu_fault"), PATIENCE_SECONDS)
        await host.end(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not host.calls:
                await asyncio.sleep(0.1)
        await looks(watcher)
        assert set(host.calls) == {"e0 gpu_fault"}
