"""The search for a target's server, among real processes that pose as vLLM: command line, titles, children."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.restart.hooks.calls import alive, call, started, until
from vllm_watch.restart.hooks import base, server_process
from vllm_watch.restart.hooks.command import Hook
from vllm_watch.settings.hooks import CommandHook
from vllm_watch.sources.engine_processes import descendants

POSING = Path(__file__).parent / "posing_vllm.py"


@dataclass
class Vllm:
    process: subprocess.Popen
    port: int
    engine: int
    worker: int
    helper: int

    @property
    def pid(self):
        return self.process.pid

    def call(self, **changed):
        told = {"url": f"http://127.0.0.1:{self.port}", "process_start_time": started(self.pid)}
        return call(**(told | changed))


@pytest.fixture
def serve(tmp_path):
    """Start servers that pose as vLLM; nothing of them outlives the test."""
    program = tmp_path / "bin" / "vllm"
    program.parent.mkdir()
    program.symlink_to(POSING)
    servers = []

    def start(*words):
        argv = [sys.executable, str(program), "serve", *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        servers.append(Vllm(process, *map(int, process.stdout.readline().split())))
        return servers[-1]

    yield start
    for server in servers:
        for pid in (server.pid, server.engine, server.worker, server.helper):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        server.process.stdout.close()
        server.process.wait(10)


async def pid_found(told):
    return (await server_process.find(base.Tools(), told)).facts.pid


async def why_not(told):
    """Return why no server is taken, as the command hook with `relaunches: false` reports it."""
    return await Hook(
        CommandHook(name="a", argv=("/bin/true",), relaunches=False), base.Tools()
    ).refusal(told)


async def test_server_is_found_beside_another_one(serve):
    """By port and start; what it has started is known with it."""
    vllm, other = serve(), serve()
    found = await server_process.find(base.Tools(), vllm.call())
    assert found.facts.pid == vllm.pid
    assert {vllm.engine, vllm.worker, vllm.helper} <= {
        each.pid for each in descendants(found.facts.pid, found.all)
    }
    named = f"http://localhost:{other.port}"
    assert await pid_found(other.call(process_start_time=None, url=named)) == other.pid


async def test_zombie_is_no_server(serve):
    vllm = serve()
    os.kill(vllm.pid, signal.SIGKILL)
    assert until(lambda: not alive(vllm.pid))
    assert "no vLLM server was found" in await why_not(vllm.call())


async def test_engine_that_lost_its_server_is_none(serve):
    """An orphaned engine that still holds the port is not the server that was observed."""
    vllm = serve("--engines-stay", "--stubborn")
    told = vllm.call()
    os.kill(vllm.pid, signal.SIGKILL)
    vllm.process.wait(10)
    assert "no vLLM server was found" in await why_not(told)
    assert "no vLLM server was found" in await why_not(replace(told, process_start_time=None))


async def test_another_incarnation_is_not_taken(serve):
    """A server that began at another time was started again since: it is healthy for all we know."""
    vllm = serve()
    for seconds in (-60.0, 60.0):
        told = vllm.call(process_start_time=started(vllm.pid) + seconds)
        assert "is not that of the observed server" in await why_not(told)


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:{port}", "http://[2001:db8::1]:{port}", "http://127.0.0.1:1"]
)
async def test_server_of_another_host_is_not_ours(serve, url):
    """The same port on another machine is another server, also where both started in the same second."""
    vllm = serve()
    told = vllm.call(url=url.format(port=vllm.port))
    assert "no vLLM server was found" in await why_not(told)
    unknown = vllm.call(url="http://no-such-host.invalid:1")
    assert "cannot be resolved" in await why_not(unknown)


async def test_two_that_fit_are_one_too_many(serve):
    """They cannot be told apart: none is taken."""
    one = serve("--shared")
    serve("--shared", "--port", str(one.port))
    assert "several servers were found" in await why_not(one.call(process_start_time=None))


async def test_server_that_nobody_starts_again(serve):
    """Without a supervisor that is seen, a command that only ends it is refused."""
    vllm = serve()
    refused = await why_not(vllm.call())
    assert refused.startswith("it may stay down: ")


@pytest.mark.parametrize(
    ("cmdline", "expected"), [("vllm serve m", True), ("VLLM::APIServer", True), ("VLLM::EngineCore", False), ("", False)]
)  # fmt: skip
def test_server_is_known_by_its_command_line_or_title(cmdline, expected):
    """An API server of several has a title, as engines have."""
    assert server_process.is_server(tuple(cmdline.split())) is expected
