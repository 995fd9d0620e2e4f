"""Real processes, left behind, dead, stopped and hidden, on a fake GPU: read by the real pynvml, then judged.

The fake driver charges memory to PIDs of this machine; everything else is the kernel's.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.leftovers import Leftovers, state, wait_for
from tests.nvml_stub import GIB, h200, one
from vllm_watch.signals.holders.judge import HolderJudge
from vllm_watch.signals.holders.records import Limits

QUICK = Limits(dead_seconds=0.2, orphan_seconds=0.2, stopped_seconds=0.2, stuck_seconds=0.2)


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers


async def judged(stub, make_source, *pids, looks=4, before=None):
    """The verdicts after some looks, 0.3 s of the judge's time apart; `before` runs after the first."""
    stub.set_state(gpus={0: h200(processes=dict.fromkeys(pids, 10 * GIB), utilization=0)})
    source, judge = make_source(), HolderJudge(QUICK)
    for number in range(looks):
        gpus = await one(source)
        found = judge.look(0.3 * number, time.time(), gpus)
        if number == 0 and before is not None:
            await asyncio.to_thread(before)
    return {
        holder.process.pid: (holder.judged.verdict, holder.judged.reason, holder)
        for holder in found[0].holders
    }


async def test_a_core_below_its_living_server_is_vllm(stub, make_source, left):
    """Its ancestors are read: the server is among them."""
    _, (core,) = left.server("VLLM::EngineCore")
    verdict, reason, holder = (await judged(stub, make_source, core))[core]
    assert (verdict, reason) == ("vllm", None)
    assert any("vllm serve" in command for command in holder.process.ancestors)


async def test_a_server_killed_while_we_look_leaves_an_orphan(stub, make_source, left):
    """SIGKILL: the core lives on as the child of whatever takes it over."""
    server, (core,) = left.server("VLLM::EngineCore")

    def kill():
        server.kill()
        server.wait(10)

    verdict, reason, holder = (await judged(stub, make_source, core, before=kill))[core]
    assert (verdict, reason) == ("stale", "orphaned_worker")
    assert f"its parent, process {server.pid}, died" in holder.judged.evidence[0]


async def test_a_server_killed_before_we_looked_leaves_an_orphan_too(stub, make_source, left):
    """Told by what is above it now, and by its process group, whose leader is gone."""
    server, (core,) = left.server("VLLM::EngineCore")
    server.kill()
    server.wait(10)
    verdict, reason, holder = (await judged(stub, make_source, core))[core]
    assert holder.process.left_behind is True
    assert (verdict, reason) == ("stale", "orphaned_worker")


async def test_a_real_zombie_keeps_its_memory(stub, make_source, left):
    """Nobody has reaped it, and the driver still charges it."""
    parent = left.start(
        sys.executable, "-c",
        "import os,time\npid=os.fork()\nif not pid: os._exit(0)\nprint(pid,flush=True); time.sleep(600)",
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    zombie = int(parent.stdout.readline())
    wait_for(lambda: state(zombie) == "Z")
    verdict, reason, holder = (await judged(stub, make_source, zombie))[zombie]
    assert (verdict, reason) == ("stale", "zombie_context")
    assert f"end its parent, process {parent.pid}" in holder.judged.remedy


async def test_a_process_that_is_gone_keeps_its_memory(stub, make_source, left):
    """The driver lists a number that the host no longer has."""
    gone = left.start("true")
    gone.wait(10)
    verdict, reason, holder = (await judged(stub, make_source, gone.pid))[gone.pid]
    if holder.process.state is None:  # in a container: a number that we do not see says nothing
        assert (verdict, reason) == ("unknown", None)
    else:
        assert (verdict, reason) == ("stale", "zombie_context")


async def test_a_stopped_process_is_idle_and_a_stopped_engine_is_not(stub, make_source, left):
    """Ctrl-Z on a program, and SIGSTOP to an engine core below its server."""
    program = left.start("sleep", "600")
    _, (core,) = left.server("VLLM::EngineCore")
    for pid in (program.pid, core):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda pid=pid: state(pid) == "T")
    found = await judged(stub, make_source, program.pid, core)
    assert found[program.pid][:2] == ("stale", "idle_process")
    assert found[core][:2] == ("vllm", None), found[core]
