"""Ending a process and no other: of real processes, one of whose numbers is given to another."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import Leftovers, lives, state, wait_for
from vllm_watch.reclaim.ending import pin
from vllm_watch.sources.processes import ProcReader

ROOT = Path(__file__).parents[2]


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers


def started(pid):
    return ProcReader().read(pid).create_time


async def test_it_is_told_when_a_process_ends(left):
    """Not yet, and then at once."""
    process = left.start("sleep", "600")
    pinned = pin(process.pid, started(process.pid))
    assert pinned.send(0)
    assert not await pinned.ended(0.05)
    assert pinned.send(signal.SIGTERM)
    assert await pinned.ended(10)
    assert not pinned.lives()  # though nobody has reaped it
    assert pinned.state() == "Z"
    process.wait(10)
    assert pinned.state() is None
    assert pinned.send(signal.SIGTERM) is False
    pinned.close()


def test_another_start_is_another_process(left):
    """The number was somebody else's when it was seen: it is not pinned."""
    pid = left.start("sleep", "600").pid
    assert pin(pid, started(pid) - 60) is None
    assert pin(pid, None) is None


def test_what_has_ended_is_not_pinned(left):
    """Neither a zombie nor a number that nobody has."""
    process = left.start("true")
    wait_for(lambda: state(process.pid) == "Z")
    create_time = started(process.pid)
    assert pin(process.pid, create_time) is None
    process.wait(10)
    assert pin(process.pid, create_time) is None


def test_a_process_that_ends_before_proc_is_read_is_not_pinned(left, tmp_path):
    """Alive when its pidfd was opened, gone from /proc a moment later: not pinned, and the pidfd is closed."""
    pid = left.start("sleep", "600").pid
    before = os.listdir("/proc/self/fd")
    assert pin(pid, started(pid), procfs=tmp_path) is None
    assert os.listdir("/proc/self/fd") == before


REUSED = """
import signal, subprocess
from vllm_watch.reclaim.ending import pin
from vllm_watch.sources.processes import ProcReader
first = subprocess.Popen(["sleep", "600"])
pinned = pin(first.pid, ProcReader().read(first.pid).create_time)
first.kill()
first.wait()
with open("/proc/sys/kernel/ns_last_pid", "w") as last:
    last.write(str(first.pid - 1))
second = subprocess.Popen(["sleep", "600"])
assert second.pid == first.pid, (second.pid, first.pid)
print(pinned.lives(), pinned.send(signal.SIGKILL), pinned.state(), second.poll())
second.kill()
second.wait()
"""


def test_a_number_given_to_another_hits_nobody():
    """The same PID, really: in a PID namespace of its own, where the next number can be chosen."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("False False None None\n", 0), done.stderr


def test_a_signal_is_refused_to_who_may_not_send_it(left):
    """Another user's process, without the right: told before anything is done."""
    pid = left.start("setpriv", "--reuid=65534", "--clear-groups", "sleep", "600").pid
    wait_for(lambda: b"sleep" in Path(f"/proc/{pid}/comm").read_bytes())
    ask = (
        "import sys; from vllm_watch.reclaim.ending import pin\n"
        "from vllm_watch.sources.processes import ProcReader\n"
        f"pinned = pin({pid}, ProcReader().read({pid}).create_time)\n"
        "try: pinned.send(0)\nexcept PermissionError: print('refused')"
    )
    done = subprocess.run(
        ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-c", ask],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr
    assert lives(pid)
