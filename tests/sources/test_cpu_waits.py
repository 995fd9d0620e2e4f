"""How long an engine's threads waited for a CPU: real processes that starve, and trees that lack things."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.leftovers import PATIENCE_SECONDS, wait_for
from tests.sources.test_processes import Row
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Call, Observation, Reading, ServerSample
from vllm_watch.sources import cpu_waits
from vllm_watch.sources.cpu_waits import THREADS_MAX, CpuWaits, thread_waits
from vllm_watch.sources.processes import ProcReader

URL = "http://127.0.0.1:8000"
STARVED_SECONDS = 1.5

# A server whose engine core works as soon as it is told to, for 20 s at most.
CORE = """
import sys, threading, time
def work():
    print("works", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass
print("ready", flush=True)
sys.stdin.readline()
{run}
time.sleep(60)
"""
SERVER = """
import subprocess, sys
core = subprocess.Popen(["VLLM::EngineCore", "-c", sys.argv[1]], executable=sys.executable)
print(core.pid, flush=True)
core.wait()
"""
LOOP = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


def observed(started=None, engines=("0",)):
    reading = Reading(
        vllm=True,
        engines=tuple(EngineSample(engine=name) for name in engines),
        server=ServerSample(process_start_time=started),
    )
    return Observation(t=0.0, target="x", scrape=Call(outcome="ok"), reading=reading)


@contextmanager
def started_process(*command, cpu=None, **options):
    """A child, ended with the block. On one CPU, and nice, so that tests beside this one go on."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})  # children inherit it
    try:
        child = subprocess.Popen(
            ["nice", "-n", "5", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )
    finally:
        os.sched_setaffinity(0, before)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@contextmanager
def engine(run, cpu=None):
    """(when the server started, the core's PID, a call that lets the core work) of a server with an engine core."""
    code = CORE.format(run=run)
    with started_process(sys.executable, "-c", SERVER, code, cpu=cpu) as server:
        pid = int(server.stdout.readline())
        try:
            assert server.stdout.readline() == b"ready\n"

            def begin():
                server.stdin.write(b"go\n")
                server.stdin.flush()
                assert server.stdout.readline() == b"works\n"

            yield ProcReader().read(server.pid).create_time, pid, begin
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def waited(waits, seen):
    (sample,) = waits.read(seen, time.monotonic())
    return sample


def test_an_engine_that_starves_is_seen_to_wait():
    """Two neighbours want the CPU of one of its threads: it waits most of the time. While it slept, it did not."""
    run = "threading.Thread(target=work, daemon=True).start()"
    cpu = max(os.sched_getaffinity(0))
    waits = CpuWaits(URL)
    with ExitStack() as stack:
        started, pid, begin = stack.enter_context(engine(run, cpu))
        seen = observed(started)
        first = waited(waits, seen)
        assert (first.engine, first.waited_seconds) == ("0", 0.0)
        assert pid in waits.pids  # whose GPU memory is this server's, too
        time.sleep(0.3)
        assert waited(waits, seen).waited_seconds < 0.2

        for _ in range(2):
            stack.enter_context(started_process(sys.executable, "-c", LOOP, cpu=cpu))
        begin()
        before, began_s = waited(waits, seen).waited_seconds, time.monotonic()
        time.sleep(STARVED_SECONDS)
        starved = waited(waits, seen)
        passed_s = time.monotonic() - began_s

        # Two thirds, where all three are as nice.
        assert starved.waited_seconds - before > 0.25 * passed_s
        assert (starved.pid, starved.name) == (pid, "VLLM::EngineCore")
    waits.close()


def test_an_engine_that_ends_is_let_go():
    """Its folder in /proc is held open, so a successor with the same PID could not answer for it."""
    waits = CpuWaits(URL)
    with engine("work()") as (started, pid, _):
        assert waits.read(observed(started), 0.0)
        held = open_folders()
        os.kill(pid, 9)
        wait_for(lambda: waits.read(observed(started), 1.0) is None)
        assert open_folders() < held
    waits.close()


def test_the_core_is_named_and_so_is_a_process_that_is_stopped():
    waits = CpuWaits(URL)
    with engine("work()") as (started, pid, _):
        first = waited(waits, observed(started))
        assert (first.core, first.stopped) == (f"VLLM::EngineCore (PID {pid})", None)
        for number, said in (
            (signal.SIGSTOP, f"VLLM::EngineCore (PID {pid})"),
            (signal.SIGCONT, None),
        ):
            os.kill(pid, number)
            wait_for(lambda said=said: waited(waits, observed(started)).stopped == said)
    waits.close()


def open_folders():
    return len(os.listdir("/proc/self/fd"))


def test_threads_beyond_the_bound_are_left_out_the_main_one_first():
    count = THREADS_MAX + 88
    code = (
        f"import threading, time\nfor _ in range({count}):\n"
        " threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    with started_process(sys.executable, "-c", code) as child:
        assert child.stdout.readline() == b"ready\n"
        folder = os.open(f"/proc/{child.pid}", os.O_PATH)
        try:
            found = list(thread_waits(folder, THREADS_MAX))
            began_s = time.thread_time()
            list(thread_waits(folder, THREADS_MAX))
            assert time.thread_time() - began_s < 0.1  # some milliseconds
        finally:
            os.close(folder)
    assert len(found) == THREADS_MAX
    assert found[0][0] == str(child.pid)


# --- trees made by hand

STARTED = 1_700_000_000.0 + 50.0  # by `Row`'s ticks


@pytest.fixture
def tree(tmp_path):
    """A server with a core of two threads, in a made-up /proc."""
    (tmp_path / "stat").write_text("btime 1700000000\n")
    Row(10, "vllm", cmdline=b"vllm\0serve\0").write(tmp_path)
    core(tmp_path)
    return tmp_path


def core(tree, start_ticks=9_000, **waits_ns):
    Row(
        20, "VLLM::EngineCor", ppid=10, cmdline=b"VLLM::EngineCore\0", start_ticks=start_ticks
    ).write(tree)
    for thread in ("20", "21"):
        count(tree, thread, waits_ns.get(f"of_{thread}", 0))


def count(tree, thread, waited_ns, pid=20):
    folder = tree / str(pid) / "task" / thread
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"123456 {waited_ns} 7\n")


@pytest.fixture
def waits(tree, tmp_path_factory):
    found = CpuWaits(URL, tree, tmp_path_factory.mktemp("no_cgroups"))
    yield found
    found.close()


def test_the_thread_that_waited_longest_since_the_look_before_counts(tree, waits):
    """Not the sum over threads, which would count one moment many times; nor one thread for ever."""
    seen = observed(STARTED)
    count(tree, "20", 5_000_000_000)
    assert waited(waits, seen).waited_seconds == 0.0  # counted from now on
    count(tree, "20", 5_200_000_000)
    count(tree, "21", 100_000_000)
    assert waited(waits, seen).waited_seconds == pytest.approx(0.2)
    count(tree, "21", 700_000_000)
    assert waited(waits, seen).waited_seconds == pytest.approx(0.8)
    count(tree, "22", 9_000_000_000)  # a new thread: since when it waits is not known
    assert waited(waits, seen).waited_seconds == pytest.approx(0.8)
    count(tree, "21", 0)  # its number was given to another
    assert waited(waits, seen).waited_seconds == pytest.approx(0.8)


def test_of_a_core_and_its_workers_the_one_that_waited_longest_counts(tree, waits):
    """A step waits for all of them; who it was is named."""
    Row(30, "VLLM::Worker_TP", ppid=20, cmdline=b"VLLM::Worker_TP0\0").write(tree)
    Row(31, "VLLM::Worker_TP", ppid=20, cmdline=b"VLLM::Worker_TP1\0").write(tree)
    for pid in (30, 31):
        count(tree, str(pid), 0, pid=pid)
    assert waited(waits, observed(STARTED)).name is None
    count(tree, "30", 700_000_000, pid=30)
    count(tree, "31", 300_000_000, pid=31)
    sample = waited(waits, observed(STARTED))
    assert sample.waited_seconds == pytest.approx(0.7)
    assert (sample.pid, sample.name) == (30, "VLLM::Worker_TP0")


def test_a_successor_with_the_same_pid_is_another_process(tree, waits):
    """Not one look is believed; then it is followed by itself, from nothing."""
    seen = observed(STARTED)
    assert waits.read(seen, 0.0)
    shutil.rmtree(tree / "20")
    core(tree, start_ticks=99_000, of_20=3_000_000_000)
    assert waits.read(seen, 1.0) is None
    (again,) = waits.read(seen, 10.0)
    assert again.waited_seconds == 0.0


def test_another_start_is_looked_for_at_once(tree, waits):
    """The server says that it is another one now."""
    assert waits.read(observed(STARTED), 0.0)
    assert waits.read(observed(STARTED + 600.0), 1.0) is None
    Row(10, "vllm", cmdline=b"vllm\0serve\0", start_ticks=65_000).write(tree)
    assert waits.read(observed(STARTED + 600.0), 70.0)


def without_schedstat(tree):
    for each in tree.glob("20/task/*/schedstat"):
        each.unlink()


def garbled(tree):
    for each in tree.glob("20/task/*/schedstat"):
        each.write_text("gVisor\n")


LACKING = {
    "a kernel that does not count": (without_schedstat, observed(STARTED)),
    "a kernel that says something else": (garbled, observed(STARTED)),
    "a /proc that hides it": (lambda tree: shutil.rmtree(tree / "20"), observed(STARTED, ("0", "1"))),
    "no /proc": (shutil.rmtree, observed(STARTED)),
    "a server of another host": (lambda _: None, observed(STARTED - 600.0)),
    "a server that does not answer": (
        lambda _: None, Observation(t=0.0, target="x", scrape=Call(outcome="refused")),
    ),
    "one that shows no engine": (lambda _: None, observed(STARTED, ())),
}  # fmt: skip


@pytest.mark.parametrize(("change", "seen"), LACKING.values(), ids=LACKING)
def test_what_cannot_be_seen_is_unknown(tree, waits, change, seen):
    """None, and never 0."""
    change(tree)
    assert waits.read(seen, 0.0) is None


def test_a_kernel_that_does_not_count_is_not_asked_again_and_again(tree, waits):
    """To look through all processes costs more than it can tell."""
    without_schedstat(tree)
    assert waits.read(observed(STARTED), 0.0) is None
    core(tree)
    assert waits.read(observed(STARTED), 30.0) is None
    assert waits.read(observed(STARTED), 61.0)


LIMITED = "/kubepods/pod7/c0ffee"
CGROUPS = {
    # files below the cgroup tree, the engine's cgroup → (periods, throttled)
    "its container has a limit": (
        {"kubepods/pod7/c0ffee": ("200000 100000", "nr_periods 50\nnr_throttled 20\nthrottled_usec 9\n")},
        LIMITED, (50.0, 20.0),
    ),
    "its pod has": (
        {"kubepods/pod7/c0ffee": ("max 100000", "nr_periods 0\n"),
         "kubepods/pod7": ("50000 100000", "nr_periods 7\nnr_throttled 1\n")},
        LIMITED, (7.0, 1.0),
    ),
    "nobody has": ({"kubepods/pod7/c0ffee": ("max 100000", "nr_periods 0\n")}, LIMITED, (None, None)),
    "its statistics say something else": (
        {"kubepods/pod7/c0ffee": ("200000 100000", "nr_periods\n")}, LIMITED, (None, None),
    ),
    "outside of what we see": ({"../c0ffee": ("1 1", "nr_periods 7\nnr_throttled 1\n")}, "/../c0ffee", (None, None)),
    "version 1": ({}, LIMITED, (None, None)),
}  # fmt: skip


@pytest.mark.parametrize(("files", "path", "periods"), CGROUPS.values(), ids=CGROUPS)
def test_periods_of_its_cpu_limit(tree, tmp_path_factory, files, path, periods):
    """Of the nearest cgroup upwards that has one."""
    cgroupfs = tmp_path_factory.mktemp("sys") / "cgroup"
    cgroupfs.mkdir()
    for folder, (limit, said) in files.items():
        (cgroupfs / folder).mkdir(parents=True, exist_ok=True)
        (cgroupfs / folder / "cpu.max").write_text(limit + "\n")
        (cgroupfs / folder / "cpu.stat").write_text("usage_usec 1\n" + said)
    (tree / "20" / "cgroup").write_text(f"0::{path}\n")
    waits = CpuWaits(URL, tree, cgroupfs)
    sample = waited(waits, observed(STARTED))
    waits.close()
    assert (sample.quota_periods, sample.throttled_periods) == periods


async def test_a_look_that_hangs_holds_nobody_up(tree, waits, monkeypatch):
    """A file that blocks whoever opens it: unknown after a second, then at once, until it is through."""
    stuck = tree / "20" / "task" / "20" / "schedstat"
    stuck.unlink()
    os.mkfifo(stuck)
    assert await waits.observe(observed(STARTED)) is None
    monkeypatch.setattr(cpu_waits, "READ_SECONDS_MAX", 3600.0)
    async with asyncio.timeout(30):
        assert await waits.observe(observed(STARTED)) is None
    waits.close()  # takes effect when it is through
    await asyncio.to_thread(stuck.write_text, "1 2 3\n")
    for thread in threading.enumerate():
        if thread.name == "cpu waits":
            await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
    await asyncio.sleep(0)
    assert await waits.observe(observed(STARTED)) is None


async def test_a_look_from_the_event_loop(tree, waits):
    (sample,) = await waits.observe(observed(STARTED))
    assert sample.waited_seconds == 0.0
