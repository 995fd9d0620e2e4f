"""`vllm-watch gpus --reclaim PID`: real processes, left behind and living, on a fake GPU that frees what ends."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.leftovers import lives, state, wait_for
from tests.nvml_stub import GIB, NvmlStub, h200

SECONDS_MAX = 120  # a look takes six seconds on a machine that has time
BASE = GIB // 2


class Host:
    """A host with fake GPUs, a state folder, and our command."""

    def __init__(self, library, folder):
        self.stub = NvmlStub(library)
        self.stub.state_path = folder / "nvml.state"
        self.state = folder / "state"

    def charge(self, *gpus, **keys):
        """One GPU for each mapping of PID to GiB, all of them doing nothing."""
        described = {
            index: h200(index, {pid: gib * GIB for pid, gib in held.items()}, utilization=0)
            for index, held in enumerate(gpus)
        }
        self.stub.set_state(gpus=described, release_on_exit=1, **keys)

    def command(self, *arguments):
        return [sys.executable, "-m", "vllm_watch", *map(str, arguments)]

    @property
    def environment(self):
        return os.environ | self.stub.env() | {"VLLM_WATCH_STATE_DIR": str(self.state)}

    def run(self, *arguments):
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=SECONDS_MAX,
            env=self.environment, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def reclaim(self, pid, *arguments):
        return self.run("gpus", "--reclaim", pid, *arguments)

    def journal(self):
        done = self.run("journal", "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def host(library, tmp_path):
    return Host(library, tmp_path)


def actions(entries):
    return [entry["action"] for entry in entries]


def flat(text):
    """Without the line breaks of a terminal's width."""
    return " ".join(text.split())


def test_an_orphaned_core_is_ended_and_its_memory_comes_back(host, left):
    """Two GPUs; what is said before, what is said after, and the journal, which was written first."""
    (core,) = left.orphans("VLLM::EngineCore")
    host.charge({core: 50}, {core: 3, os.getpid(): 2})
    done = host.reclaim(core, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert not lives(core)
    assert f"process {core} is stale: orphaned_worker" in done.stdout
    assert "VLLM::EngineCore" in done.stdout
    assert "whose    user " in done.stdout
    assert "50.0 GiB on GPU 0 (NVIDIA H200), 3.0 GiB on GPU 1 (NVIDIA H200)" in done.stdout
    assert "GPU 0: 50.5 GiB used before, 512 MiB now" in done.stdout
    assert "GPU 1: 5.5 GiB used before, 2.5 GiB now" in done.stdout
    assert done.stdout.endswith("freed 53.0 GiB, as the driver confirms\n")
    entries = host.journal()
    assert actions(entries) == ["reclaim_intent", "reclaim_term", "reclaim_outcome"]
    assert {entry["target"] for entry in entries} == {f"process {core} (VLLM::EngineCore)"}
    assert entries[0]["reason"].startswith("orphaned_worker: ")
    assert entries[0]["before"] == "50.0 GiB on GPU 0, 3.0 GiB on GPU 1"
    assert entries[-1]["after"].startswith("freed: GPU 0 50.5 GiB → 512 MiB used")
    told = host.run("journal").stdout
    assert "reclaim intent: process" in told


def test_one_that_ignores_sigterm_is_killed(host, left):
    """After the wait; each of the two is in the journal, as JSON says it too."""
    (core,) = left.orphans("VLLM::EngineCore", before="trap '' TERM;")
    host.charge({core: 50})
    done = host.reclaim(core, "--yes", "--json", "--term-wait", 1)
    said = json.loads(done.stdout)
    assert (done.returncode, said["freed"], said["refused"]) == (0, True, None)
    (process,) = said["processes"]
    assert (process["pid"], process["ended_by"], process["reason"]) == (
        core, "kill", "orphaned_worker",
    )  # fmt: skip
    assert process["after_seconds"] >= 1
    (gpu,) = said["gpus"]
    assert gpu["memory_used_bytes_before"] - gpu["memory_used_bytes_after"] == 50 * GIB
    assert (gpu["held_bytes"], gpu["released"]) == (50 * GIB, True)
    assert said["journal"] == str(host.state)
    assert actions(host.journal()) == [
        "reclaim_intent", "reclaim_term", "reclaim_kill", "reclaim_outcome",
    ]  # fmt: skip


def test_a_stopped_one_is_continued_to_take_its_sigterm(host, left):
    """A stopped process takes no SIGTERM; it is not killed for that."""
    (core,) = left.orphans("VLLM::EngineCore")
    os.kill(core, signal.SIGSTOP)
    wait_for(lambda: state(core) == "T")
    host.charge({core: 50})
    done = host.reclaim(core, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGTERM to process" in done.stdout
    assert "then SIGCONT" in done.stdout
    assert actions(host.journal()) == ["reclaim_intent", "reclaim_term", "reclaim_outcome"]


def test_memory_that_stays_is_not_called_freed(host, left):
    """The process ends and the driver's context outlives it, listed or not: said, with what to do."""
    for key, words in (("leaked", "that no process holds"), ("kept", "still holds 50.0 GiB: it ")):
        (core,) = left.orphans("VLLM::EngineCore")
        host.charge({core: 50}, **{f"{key}__{core}": 1})
        # Bounded here, since a driver that keeps it keeps it for ever.
        done = run_in_python(host, core, release_seconds=2.0)
        assert done.returncode == 1, done.stdout + done.stderr
        assert not lives(core)
        assert words in flat(done.stdout)
        assert "not freed (the driver was asked" in done.stdout
        assert "nvidia-smi --gpu-reset" in done.stdout
    assert host.journal()[-1]["after"].startswith("not freed: ")


def run_in_python(host, pid, release_seconds):
    """As the command does it, with a shorter wait for the driver."""
    script = (
        "import argparse, sys; from vllm_watch.cli import gpus; from vllm_watch.cli.helpers.reclaim import reclaim\n"
        "from vllm_watch.reclaim.reclaim import Patience\n"
        "gpus.add_arguments(parser := argparse.ArgumentParser())\n"
        f"arguments = parser.parse_args(['--reclaim', '{pid}', '--yes'])\n"
        f"sys.exit(not reclaim(arguments, Patience(release_seconds={release_seconds})))"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=SECONDS_MAX,
        env=host.environment, check=False,
    )  # fmt: skip


def test_stale_children_go_with_it_and_others_stay(host, left):
    """The core's workers are its children; a sibling of the core is named and not touched."""
    core, sibling = left.orphans("VLLM::EngineCore", "VLLM::Worker_TP7", before="")
    parent = left.orphans_with_child("VLLM::EngineCore", "VLLM::Worker_TP0")
    host.charge({core: 5, sibling: 6}, {parent.pid: 7, parent.child: 8})
    done = host.reclaim(parent.pid, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"process {parent.child}, which it started and is stale too" in flat(done.stdout)
    assert f"process {sibling} is stale too, and stays" in flat(done.stdout)
    assert "freed 15.0 GiB" in done.stdout
    assert [lives(pid) for pid in (parent.pid, parent.child, core, sibling)] == [
        False, False, True, True,
    ]  # fmt: skip


def living(left):
    _, (core,) = left.server("VLLM::EngineCore")
    return core, "is not stale but vllm", "stop that engine where it was started"


def working(left):
    busy = left.start(sys.executable, "-c", "while True: pass")
    return busy.pid, "is not stale but active", "it is in use"


def waiting(left):
    return left.start("sleep", "600").pid, "is not stale but unknown", "--look SECONDS"


def zombie(left):
    """It has ended; only its parent can take it away."""
    parent = left.start(
        sys.executable, "-c", "import subprocess,time; p=subprocess.Popen(['true']); print(p.pid,flush=True); time.sleep(600)",
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid = int(parent.stdout.readline())
    wait_for(lambda: state(pid) == "Z")
    return pid, "cannot be ended", f"end its parent, process {parent.pid}"


def our_parent(_):
    return os.getpid(), "is a parent of this command", "from elsewhere"


def first(_):
    return 1, "process 1 keeps", "stop the container"


REFUSED = [living, working, waiting, zombie, our_parent, first]


@pytest.mark.parametrize("made", REFUSED, ids=lambda made: made.__name__)
def test_what_is_not_stale_is_refused(host, left, made):
    """With the verdict and what to do instead; nothing is ended and nothing is journaled."""
    pid, cause, remedy = made(left)
    before = state(pid)
    host.charge({pid: 20}, **({f"kept__{pid}": 1} if before == "Z" else {}))
    done = host.reclaim(pid, "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert cause in done.stderr
    assert remedy in done.stderr
    assert (state(pid) == "Z") == (before == "Z")
    assert state(pid) is not None
    assert not host.state.exists()


def test_what_holds_nothing_is_refused(host, left):
    """A core without memory whose workers have it; and a GPU whose memory is nobody's."""
    parent = left.orphans_with_child("VLLM::EngineCore", "VLLM::Worker_TP0")
    host.charge({parent.child: 8})
    done = host.reclaim(parent.pid, "--yes", "--json")
    refused = json.loads(done.stdout)["refused"]
    assert done.returncode == 1
    assert refused["cause"].endswith(f"holds no GPU memory; its children do: {parent.child}")
    assert f"--reclaim {parent.child}" in refused["remedy"]
    assert lives(parent.child)


def test_memory_of_nobody_is_not_reclaimed_from_a_process(host, left):
    """What to do about it is said: it takes a reset."""
    host.stub.set_state(
        driver="525.147.05", gpus={0: h200(memory_used=40 * GIB, utilization=0)}, release_on_exit=1
    )
    pid = left.start("sleep", "600").pid
    done = host.reclaim(pid, "--yes")
    assert done.returncode == 1
    assert "holds no GPU memory" in done.stderr
    if "no process's" in done.stderr:  # told only where all of the host's processes are seen
        assert "nvidia-smi --gpu-reset" in done.stderr


def answer(host, core, text):
    """Run it on a terminal and answer its question; (status, all that was printed)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(host.environment)
        arguments = host.command("gpus", "--reclaim", core)
        os.execv(arguments[0], arguments)
    said, asked = b"", False
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # it has ended
            break
        said += piece
        if b"[yes/no]" in said and not asked:
            asked = True
            os.write(terminal, text)
        if not piece:
            break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def test_it_asks_on_a_terminal(host, left):
    """No, and then yes; without a terminal it refuses, since nobody can be asked."""
    (core,) = left.orphans("VLLM::EngineCore")
    host.charge({core: 50})
    done = host.reclaim(core)
    assert done.returncode == 1
    assert "there is no terminal to ask on" in done.stderr
    status, said = answer(host, core, b"no\n")
    assert (status, lives(core)) == (1, True)
    assert "you did not confirm" in said
    assert host.journal() == []
    status, said = answer(host, core, b"yes\n")
    assert (status, lives(core)) == (0, False), said
    assert "freed 50.0 GiB" in said


def test_without_a_journal_nothing_is_done(host, left):
    """A folder that cannot be written refuses it, unless nobody wants a journal."""
    (core,) = left.orphans("VLLM::EngineCore")
    host.charge({core: 50})
    host.state.write_text("a file where the folder should be")
    done = host.reclaim(core, "--yes")
    assert (done.returncode, lives(core)) == (1, True)
    assert "the journal cannot be written" in done.stderr
    assert "--no-journal" in done.stderr
    done = host.reclaim(core, "--yes", "--no-journal")
    assert (done.returncode, lives(core)) == (0, False)
    assert "not written down" in done.stdout


def test_another_users_process_needs_rights(host, left):
    """Said before anything is asked: whose it is, who we are, what is needed."""
    theirs = (
        "exec setpriv --reuid=65534 --clear-groups bash -c 'exec -a VLLM::EngineCore sleep 600';"
    )
    (core,) = left.orphans("VLLM::EngineCore", before=theirs)
    host.charge({core: 50})
    without_the_right = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
    done = subprocess.run(
        [*without_the_right, *host.command("gpus", "--reclaim", core, "--yes")],
        capture_output=True, text=True, timeout=SECONDS_MAX, env=host.environment, check=False,
    )  # fmt: skip
    assert (done.returncode, lives(core)) == (1, True)
    assert f"process {core} belongs to user nobody, and we run as root" in done.stderr
    assert "CAP_KILL" in done.stderr
