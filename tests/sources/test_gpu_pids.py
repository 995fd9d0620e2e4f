"""Whom NVML means by a PID, from fixture trees and for real from inside PID namespaces; and who started a worker."""

import json
import os
import subprocess
import sys

import pytest

from tests.leftovers import Leftovers, state, wait_for
from tests.sources.test_processes import Row
from vllm_watch.sources import gpu_pids
from vllm_watch.sources.gpu_pids import INITIAL_INODE, Ancestry, GpuPids, PidNamespace
from vllm_watch.sources.processes import ProcReader

OLD, BETWEEN, NEW = "525.147.05", "535.43.24", "580.65.06"
KTHREADD = Row(2, "kthreadd", ppid=0, flags=0x208040, cmdline=b"")


def host_tree(folder, *rows, our_pids="900\t7"):
    """A host's /proc mounted into our container, in which we are 900 there and 7 here."""
    for row in (Row(1, "systemd", ppid=0), KTHREADD, *rows):
        row.write(folder)
    (folder / "stat").write_text("btime 1700000000\n")
    (folder / "self").mkdir()
    (folder / "self" / "status").write_text(f"NSpid:\t{our_pids}\n")
    return ProcReader(folder)


def own_tree(folder, *rows):
    """Our container's own /proc."""
    for row in (Row(1, "tini", ppid=0), *rows):
        row.write(folder)
    (folder / "stat").write_text("btime 1700000000\n")
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "ns" / "pid").write_text("")  # any inode but the host's
    (folder / "self" / "status").write_text("NSpid:\t7\n")
    return folder


def pids(reader, own, driver):
    made = GpuPids(reader, own)
    made.set_driver(driver)
    return made


@pytest.fixture
def trees(tmp_path):
    """The folders of a host's tree and of our own."""
    for name in ("host", "own"):
        (tmp_path / name).mkdir()
    return tmp_path / "host", tmp_path / "own"


def test_an_old_driver_with_the_hosts_tree_means_the_hosts_process(trees):
    """NVML up to R530 gives host PIDs everywhere; its own number here is found by NSpid and start."""
    engine = Row(4711, "VLLM::EngineCor", nspid="4711\t42")
    reader = host_tree(trees[0], engine, Row(42, "unrelated"))
    own = own_tree(trees[1], Row(42, "VLLM::EngineCor"))
    facts = pids(reader, own, OLD).facts(4711)
    assert (facts.pid, facts.name, facts.pid_local) == (4711, "VLLM::EngineCor", 42)


@pytest.mark.parametrize(
    "there",
    [
        Row(42, "VLLM::EngineCor", start_ticks=5_001),
        Row(42, "python3"),
        Row(42, "VLLM::EngineCor", cgroup="0::/kubepods/other\n"),
        None,
    ],
    ids=["started at another time", "other name", "other container", "nobody"],
)
def test_a_sibling_containers_process_gets_no_local_pid(trees, there):
    """NSpid says 42 in *its* container; our 42 is somebody else."""
    reader = host_tree(trees[0], Row(4711, "VLLM::EngineCor", nspid="4711\t42"))
    own = own_tree(trees[1], *([there] if there else []))
    facts = pids(reader, own, OLD).facts(4711)
    assert (facts.name, facts.pid_local) == ("VLLM::EngineCor", None)


def test_a_process_that_the_host_no_longer_has_is_dead(trees):
    """NVML may list a holder that is gone: state X, which is known, unlike None."""
    facts = pids(host_tree(trees[0]), own_tree(trees[1]), OLD).facts(4711)
    assert (facts.state, facts.name, facts.cmdline) == ("X", None, None)


def test_with_hidden_processes_nothing_is_said_to_be_dead(trees):
    """Under hidepid, what cannot be seen may live."""
    reader = host_tree(trees[0])
    (trees[0] / "1" / "stat").unlink()
    assert pids(reader, own_tree(trees[1]), OLD).facts(4711) is None


@pytest.mark.parametrize("driver", [OLD, BETWEEN, NEW, None, "", "rubbish", "580"])
def test_only_our_own_proc_never_lends_a_name(trees, driver):
    """A local process with the same number is not the holder, whatever the driver."""
    own = own_tree(trees[1], Row(4711, "unrelated"))
    (own / "4711" / "fd").mkdir()
    assert pids(ProcReader(own), own, driver).facts(4711) is None


def test_a_new_driver_gives_our_numbers_and_the_open_gpu_bears_it_out(trees):
    """From 535.113 NVML translates to the caller's namespace; no host tree is needed."""
    own = own_tree(trees[1], Row(42, "VLLM::EngineCor"))
    (own / "42" / "fd").mkdir()
    (own / "42" / "fd" / "9").symlink_to("/dev/nvidia0")
    for reader in (ProcReader(own), host_tree(trees[0], Row(42, "kworker/0:1"))):
        facts = pids(reader, own, NEW).facts(42)
        assert (facts.name, facts.pid_local) == ("VLLM::EngineCor", 42)


def test_a_new_drivers_number_is_not_looked_up_on_the_host(trees):
    """With the host's tree mounted, 42 there is somebody else."""
    reader = host_tree(trees[0], Row(42, "kworker/0:1"))
    assert pids(reader, own_tree(trees[1]), NEW).facts(42) is None


def test_a_tree_without_our_host_is_not_taken_for_the_hosts(trees):
    """A node in a container (kind, docker in docker) has a /proc of its own, without kernel threads."""
    reader = host_tree(trees[0], Row(4711))
    Row(2, "kthreadd", ppid=0).write(trees[0])  # a name anybody can have; the flag nobody can
    assert pids(reader, own_tree(trees[1]), OLD).facts(4711) is None


@pytest.mark.parametrize(
    ("driver", "numbering", "memory", "utilization"),
    [
        ("525.147.05", "host", True, True),
        ("535.43.24", None, False, False),
        ("535.113.01", "ours", False, False),
        ("550.163.01", "ours", False, False),
        ("565.57.01", "ours", True, False),
        ("570.86.15", "ours", True, True),
        ("595.44.03", "ours", True, True),
        (None, None, False, False),
    ],
)
def test_what_each_driver_tells_a_container(trees, driver, numbering, memory, utilization):
    """Numbers, memory and utilization were translated by three different releases."""
    told = pids(host_tree(trees[0]), own_tree(trees[1]), driver)
    assert (told.numbering, told.memory_is_theirs, told.utilization_is_theirs) == (
        numbering, memory, utilization,
    )  # fmt: skip


def test_a_tree_that_cannot_be_read_shows_nothing(tmp_path):
    """No self, no kernel threads: neither ours nor the host's."""
    assert gpu_pids.of_tree(tmp_path) == PidNamespace(initial=False, levels_above_ours=None)
    assert not gpu_pids.we_are_initial(tmp_path)


# From here on for real: the same questions asked inside namespaces that the kernel made.

INSIDE = """
import json, os, subprocess, sys
from pathlib import Path
from vllm_watch.sources import gpu_pids
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.processes import ProcReader
procfs = Path(sys.argv[1])
child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
holder = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL,
                          stdin=open("/dev/nvidia0") if os.path.exists("/dev/nvidia0") else None)
try:
    space = gpu_pids.of_tree(procfs)
    host_pids = {p: int(n) for n in os.listdir(procfs) if n.isdigit()
                 for p in [ProcReader(procfs).read(int(n))] if p and p.ppid}
    told = {}
    for driver in ("525.147.05", "580.65.06"):
        pids = GpuPids(ProcReader(procfs)); pids.set_driver(driver)
        told[driver] = [pids.numbering,
            *[bool(pids.facts(p.pid)) for p in (child, holder)],
            sorted({f.pid_local for p in host_pids if (f := pids.facts(p.pid)) and f.pid_local
                    in (child.pid, holder.pid)})]
    print(json.dumps({"initial": space.initial, "levels": space.levels_above_ours,
        "we": gpu_pids.we_are_initial(Path("/proc")), "told": told,
        "mine": [child.pid, holder.pid]}))
finally:
    child.kill(); holder.kill(); child.wait(); holder.wait()
"""
# Our own /proc everywhere, the outer one kept at $1, and a /dev with a file where a GPU would be.
PREPARE = (
    'mount --rbind /proc "$1" && mount -t tmpfs dev /dev && touch /dev/nvidia0 /dev/null && '
    'shift && exec "$@"'
)


def inside(tmp_path, *command):
    """What GpuPids finds; run in a mount namespace, so nothing of it stays."""
    outer = tmp_path / "outer"
    outer.mkdir(exist_ok=True)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", PREPARE, "sh", str(outer), *command],
        capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": "."},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), outer


HERE_IS_HOST = (
    os.stat("/proc/self/ns/pid").st_ino == INITIAL_INODE
)  # not where tests run in a container
NEW_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")


def test_inside_a_container_only_a_process_that_holds_a_gpu_is_known(tmp_path):
    """`unshare --pid`: an old driver's numbers match nothing; a new one's only the real holder."""
    found, _ = inside(tmp_path, *NEW_NAMESPACE, sys.executable, "-c", INSIDE, "/proc")
    assert (found["initial"], found["levels"], found["we"]) == (False, 0, False)
    assert found["told"]["525.147.05"] == ["host", False, False, []]
    assert found["told"]["580.65.06"] == ["ours", False, True, [found["mine"][1]]]


def test_inside_a_container_with_the_hosts_tree_everyone_is_known_and_ours_translated(tmp_path):
    """The outer /proc, mounted elsewhere, is seen to be the host's, one level above us."""
    outer = str(tmp_path / "outer")
    found, _ = inside(tmp_path, *NEW_NAMESPACE, sys.executable, "-c", INSIDE, outer)
    assert (found["initial"], found["levels"], found["we"]) == (HERE_IS_HOST, 1, False)
    assert found["told"]["525.147.05"][3] == (sorted(found["mine"]) if HERE_IS_HOST else [])


def test_two_levels_down_the_middle_tree_is_not_the_hosts(tmp_path):
    """A container in a container: what is mounted as "host" is only the outer container."""
    middle = tmp_path / "middle"
    middle.mkdir()
    step = f'mount --rbind /proc "{middle}" && exec "$@"'
    found, _ = inside(
        tmp_path, *NEW_NAMESPACE, "sh", "-c", step, "sh",
        *NEW_NAMESPACE, sys.executable, "-c", INSIDE, str(middle),
    )  # fmt: skip
    assert (found["initial"], found["levels"], found["we"]) == (False, 1, False)
    assert found["told"]["525.147.05"][1:] == [False, False, []]


# Who started a worker, and is it still there: of real processes.


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers


def kin(pid):
    """(ancestors' commands, left behind) of a worker."""
    reader = ProcReader()
    return Ancestry(reader).of(reader.read(pid))


def test_a_core_whose_server_was_killed_and_not_reaped(left):
    """Whoever launched it has not asked for its end: the leader is a zombie, and no less gone."""
    server, (core,) = left.server("VLLM::EngineCore")
    server.kill()
    wait_for(lambda: state(server.pid) == "Z")
    assert kin(core)[1] is True


def test_a_worker_of_a_core_whose_server_was_killed(left):
    """With tensor parallelism the workers hold the memory; their own parent, the core, lives."""
    orphan = left.orphans_with_child("VLLM::EngineCore", "VLLM::Worker_TP0")
    chain, left_behind = kin(orphan.child)
    assert chain[0].startswith("VLLM::EngineCore")
    assert left_behind is True


def test_a_core_below_a_program_whose_shell_is_gone(left):
    """A program that runs on behind a shell that ended is alive, and so is what it started."""
    program = "import subprocess,time; p=subprocess.Popen(['bash','-c','exec -a VLLM::EngineCore sleep 600']); print(p.pid,flush=True); time.sleep(600)"
    shell = left.start("bash", "-c", f'python3 -c "{program}" & disown', stdout=-1, text=True)
    core = int(shell.stdout.readline())
    shell.wait(10)
    wait_for(lambda: ProcReader().read(core).cmdline[:1] == ("VLLM::EngineCore",))
    assert kin(core)[1] is False
