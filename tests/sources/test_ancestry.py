"""Who started a worker, and is it still there: of real processes."""

import pytest

from tests.leftovers import Leftovers, state, wait_for
from vllm_watch.sources.gpu_pids import Ancestry
from vllm_watch.sources.processes import ProcReader


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers


def of(pid):
    """(ancestors' commands, left behind) of a worker."""
    reader = ProcReader()
    return Ancestry(reader).of(reader.read(pid))


def test_a_worker_below_a_living_server(left):
    """The server stands in its chain."""
    _, (core,) = left.server("VLLM::EngineCore")
    chain, left_behind = of(core)
    assert "vllm serve" in chain[0]
    assert left_behind is False


def test_a_core_whose_server_was_killed(left):
    """It is of a process group without its leader, below one of another group."""
    (core,) = left.orphans("VLLM::EngineCore")
    assert of(core)[1] is True


def test_a_core_whose_server_was_killed_and_not_reaped(left):
    """Whoever launched it has not asked for its end: the leader is a zombie, and no less gone."""
    server, (core,) = left.server("VLLM::EngineCore")
    server.kill()
    wait_for(lambda: state(server.pid) == "Z")
    assert of(core)[1] is True


def test_a_worker_of_a_core_whose_server_was_killed(left):
    """With tensor parallelism the workers hold the memory; their own parent, the core, lives."""
    orphan = left.orphans_with_child("VLLM::EngineCore", "VLLM::Worker_TP0")
    chain, left_behind = of(orphan.child)
    assert chain[0].startswith("VLLM::EngineCore")
    assert left_behind is True


def test_a_core_below_a_program_whose_shell_is_gone(left):
    """A program that runs on behind a shell that ended is alive, and so is what it started."""
    program = "import subprocess,time; p=subprocess.Popen(['bash','-c','exec -a VLLM::EngineCore sleep 600']); print(p.pid,flush=True); time.sleep(600)"
    shell = left.start("bash", "-c", f'python3 -c "{program}" & disown', stdout=-1, text=True)
    core = int(shell.stdout.readline())
    shell.wait(10)
    wait_for(lambda: ProcReader().read(core).cmdline[:1] == ("VLLM::EngineCore",))
    assert of(core)[1] is False
