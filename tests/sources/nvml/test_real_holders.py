"""Real processes, left behind and stopped, on a fake GPU: read by the real pynvml, then judged.

The fake driver charges memory to PIDs of this machine; everything else is the kernel's. Those that were left behind
before anybody looked, the dead and the hidden are in tests/cli/test_gpus.py and test_gpus_reclaim.py.
"""

import asyncio
import os
import signal
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


async def test_a_server_killed_while_we_look_leaves_an_orphan(stub, make_source, left):
    """SIGKILL: the core lives on as the child of whatever takes it over."""
    server, (core,) = left.server("VLLM::EngineCore")
    assert (await judged(stub, make_source, core))[core][:2] == ("vllm", None)

    def kill():
        server.kill()
        server.wait(10)

    verdict, reason, holder = (await judged(stub, make_source, core, before=kill))[core]
    assert (verdict, reason) == ("stale", "orphaned_worker")
    assert f"its parent, process {server.pid}, died" in holder.judged.evidence[0]


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
