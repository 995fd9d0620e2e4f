"""Ending a process and no other: of real processes, one of whose numbers is given to another."""

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.leftovers import Leftovers, lives, state, wait_for
from tests.signals.holders import series
from tests.signals.holders.series import core
from vllm_watch.errors import WatchError
from vllm_watch.reclaim.plan import Part, Plan, RefusalError, Victim
from vllm_watch.reclaim.reclaim import Ended, Looks, Outcome, Patience, Reclaim, pin, said
from vllm_watch.reclaim.vram_release import Claim, Release
from vllm_watch.samples.gpu import GpuReading
from vllm_watch.signals.holders.records import Holder, Judged, Limits
from vllm_watch.sources.processes import ProcReader
from vllm_watch.state.journal import Journal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def left():
    """Processes that end with the test."""
    with Leftovers() as leftovers:
        yield leftovers


def started(pid):
    return ProcReader().read(pid).create_time


async def test_it_is_told_when_a_process_ends(left):
    process = left.start("sleep", "600")
    pinned = pin(process.pid, started(process.pid))
    assert pinned.send(0)
    assert not await pinned.ended(0.05)
    assert pinned.send(signal.SIGTERM)
    async with asyncio.timeout(20):
        assert await pinned.ended(3600)
    assert not pinned.lives()  # though nobody has reaped it
    assert pinned.state() == "Z"
    process.wait(10)
    assert pinned.state() is None
    assert pinned.send(signal.SIGTERM) is False
    pinned.close()


def descriptors():
    return os.listdir("/proc/self/fd")


STARTS = {  # when it was seen to start, from its start on; what /proc shows of it; is it pinned?
    "long before: the number was somebody else's": (-60.0, True, False),
    "before": (-2.5, True, False),
    "a second before, by another reader of the boot's time": (-1.5, True, True),
    "a second later": (1.5, True, True),
    "later": (2.5, True, False),
    "nobody knows": (None, True, False),
    "it has gone from /proc a moment later": (0.0, False, False),
    "its start is not shown": (0.0, None, False),
}


@pytest.mark.parametrize(("off_s", "shown", "pinned"), STARTS.values(), ids=STARTS)
def test_only_who_is_surely_the_one_is_pinned(left, tmp_path, off_s, shown, pinned):
    """And let go once: the number of its descriptor may be another's by then."""
    pid, before = left.start("sleep", "600").pid, descriptors()
    if shown is None:
        (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
    procfs = Path("/proc") if shown else tmp_path
    found = pin(pid, None if off_s is None else started(pid) + off_s, procfs=procfs)
    assert (found is not None) is pinned
    if found is not None:
        found.close()
        reading, writing = os.pipe()
        found.close()
        for each in (reading, writing):
            os.close(each)
    assert descriptors() == before


def test_what_has_ended_is_not_pinned(left):
    process = left.start("true")
    wait_for(lambda: state(process.pid) == "Z")
    create_time = started(process.pid)
    assert pin(process.pid, create_time) is None
    process.wait(10)
    assert pin(process.pid, create_time) is None


async def test_a_wait_that_is_over_leaves_nothing_behind(left, monkeypatch):
    """Given up, and come to its end: the loop watches its descriptor no more, which may be another's soon."""
    process = left.start("sleep", "600")
    pinned = pin(process.pid, started(process.pid))
    loop, watched = asyncio.get_running_loop(), []
    add, remove = loop.add_reader, loop.remove_reader
    monkeypatch.setattr(loop, "add_reader", lambda each, *do: watched.append(each) or add(each, *do))  # fmt: skip
    monkeypatch.setattr(loop, "remove_reader", lambda each: watched.remove(each) or remove(each))
    assert not await pinned.ended(0.01)
    assert watched == []
    pinned.send(signal.SIGKILL)
    assert await pinned.ended(10)
    assert watched == []
    pinned.close()


def test_the_state_of_one_that_is_not_ours_to_end(left, monkeypatch):
    """It is there all the same, and no signal is tried on it."""
    pid = left.start("sleep", "600").pid
    pinned, tried = pin(pid, started(pid)), []

    def refused(_, number):
        tried.append(number)
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    assert pinned.state() is not None
    assert tried == [0]
    pinned.close()


def test_the_state_of_another_that_has_its_number_is_not_its_own(left, tmp_path):
    """/proc shows who has the number now; and nothing is said of one that it does not show."""
    process = left.start("sleep", "600")
    pinned = pin(process.pid, started(process.pid))
    assert pinned.state(tmp_path) is None
    (tmp_path / str(process.pid)).symlink_to("/proc/self")
    assert pinned.state(tmp_path) is not None
    process.kill()
    process.wait(10)
    assert pinned.state(tmp_path) is None
    pinned.close()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_a_kernel_that_cannot_pin_is_told(monkeypatch, number):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refused)
    with pytest.raises(WatchError, match="process 4711 cannot be pinned"):
        pin(4711, 1.0)


REUSED = """
import signal, subprocess
from vllm_watch.reclaim.plan import Part, Victim
from vllm_watch.reclaim.reclaim import Ended, Looks, Outcome, pin, said
from vllm_watch.reclaim.vram_release import Claim, Release
from vllm_watch.signals.holders.records import Holder, Judged, Limits
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
        capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("False False None None\n", 0), done.stderr


def test_a_signal_is_refused_to_who_may_not_send_it(left):
    """Another user's process, without the right: told before anything is done."""
    pid = left.start("setpriv", "--reuid=65534", "--clear-groups", "sleep", "600").pid
    wait_for(lambda: b"sleep" in Path(f"/proc/{pid}/comm").read_bytes())
    ask = (
        "import sys; from vllm_watch.reclaim.reclaim import pin\n"
        "from vllm_watch.sources.processes import ProcReader\n"
        f"pinned = pin({pid}, ProcReader().read({pid}).create_time)\n"
        "try: pinned.send(0)\nexcept PermissionError: print('refused')"
    )
    done = subprocess.run(
        ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-c", ask],
        capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr
    assert lives(pid)


ENDED = {  # is the memory released, how the process ended: is it freed?
    "all of it": (True, "term", True),
    "nothing of it": (False, "kill", False),
    "it is not known": (None, "term", False),
    "the process did not end": (True, None, False),
}


@pytest.mark.parametrize(("released", "by", "freed"), ENDED.values(), ids=ENDED)
def test_the_sentence_about_it(released, by, freed):
    """Only memory that was seen to be free, of a process that has ended, is freed."""
    gpu = Claim(gpu=series.gpu(), held=(), after_bytes=1, released=released)
    outcome = Outcome(ended=(Ended(pid=7, by=by),), release=Release(gpus=(gpu,)))
    assert outcome.freed is freed
    assert said(outcome).startswith("freed: ") is freed
    assert ("process 7 did not end" in said(outcome)) is (by is None)


def test_one_of_two_that_did_not_end_keeps_its_memory():
    gpu = Claim(gpu=series.gpu(), held=(), after_bytes=1, released=True)
    ended = Ended(pid=7, by="term"), Ended(pid=8)
    assert not Outcome(ended=ended, release=Release(gpus=(gpu,))).freed


UNREAD = {
    "no driver": GpuReading(status="no_driver", text="no driver is loaded", t=0.0),
    "a driver that hangs": GpuReading(status="hung", text="it does not answer", t=0.0),
}


@pytest.mark.parametrize("reading", UNREAD.values(), ids=UNREAD)
async def test_gpus_that_cannot_be_read_are_no_gpus_without_holders(reading):
    async def read():
        return reading

    looks = Looks(4711, read, Limits())
    with pytest.raises(WatchError, match=f"the GPUs cannot be read: {reading.text}"):
        await looks.until_certain(0.0)


async def test_while_it_is_refused_it_looks_once_a_second(left):
    """Half a second has passed at the second look."""
    looked = []

    async def read():
        looked.append(GpuReading(status="ok", gpus=()))
        return looked[-1]

    pid = left.start("sleep", "600").pid
    with pytest.raises(RefusalError, match=f"process {pid} holds no GPU memory"):
        await Looks(pid, read, Limits()).until_certain(0.5)
    assert len(looked) == 2


def victim_of(process, **more):
    sample = core(process.pid, create_time=started(process.pid), pid_local=process.pid, **more)
    holder = Holder(process=sample, judged=Judged(verdict="stale", reason="orphan"))
    return Victim(pid=process.pid, parts=(Part(gpu=series.gpu(), holder=holder),))


@pytest.mark.parametrize(("uid", "owner"), [(65534, "user nobody"), (None, "another user")])
def test_whose_process_it_is_that_we_may_not_end(left, monkeypatch, uid, owner):
    process = left.start("sleep", "600")

    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    looks = Looks(process.pid, None, Limits())
    with pytest.raises(RefusalError, match=f"belongs to {owner}, and we run as"):
        looks._pin([victim_of(process, uid=uid)])
    looks.close()


async def test_a_process_that_ends_after_it_was_pinned_is_gone(left):
    """It is not reaped yet, so it still takes signals; and it is not pinned anew."""
    process = left.start("sleep", "600")
    victim = victim_of(process)
    looks = Looks(process.pid, None, Limits())
    looks._pin([victim])
    process.kill()
    assert await looks.pinned(victim).ended(20)
    with pytest.raises(RefusalError, match="has just ended"):
        looks._pin([victim])
    looks.close()
    with pytest.raises(RefusalError, match="has just ended"):
        looks._pin([victim])


ENDS = {  # what it does before, is it stopped: the signals that are sent, the last of which ends it
    "it ends": ("", False, ["SIGTERM"]),
    "it is stopped": ("", True, ["SIGTERM, then SIGCONT: it is stopped"]),
    "it ignores SIGTERM": ("trap '' TERM;", False, ["SIGTERM", "SIGKILL"]),
}


def sleeper(left, before=""):
    """A process that sleeps, after this shell."""
    process = left.start("bash", "-c", f"{before} exec sleep 600")
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    return process


@contextmanager
def reclaim_of(process, journal, tell, patience=None):
    """A reclaim of this process's memory, which a fake GPU frees."""

    async def read():
        return GpuReading(status="ok", gpus=(series.gpu(),))

    pinned = pin(process.pid, started(process.pid))
    with closing(pinned):
        yield Reclaim(
            plan=Plan(victims=(victim_of(process),)), pins={process.pid: pinned}, read=read,
            gpus=(series.gpu(core(process.pid)),), journal=journal, actor="ana", tell=tell,
            patience=patience or Patience(),
        )  # fmt: skip


@pytest.mark.parametrize("journaled", [True, False])
@pytest.mark.parametrize(("before", "stopped", "signals"), ENDS.values(), ids=ENDS)
async def test_each_signal_is_told_and_written(left, tmp_path, before, stopped, signals, journaled):
    """A reclaim sends SIGKILL only to who ignores SIGTERM, and it does the same without a journal."""
    process = sleeper(left, before)
    if stopped:
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(process.pid) == "T")
    journal, told = Journal(tmp_path), []
    patience = Patience(term_seconds=0.5) if before else Patience()
    with reclaim_of(process, journal if journaled else None, told.append, patience) as work:
        outcome = await work.run()
    assert outcome.freed
    assert outcome.ended[0].by == ("kill" if before else "term")
    assert outcome.ended[0].after_seconds < 600
    *sent, end = told
    assert [each.replace(f" to process {process.pid}", "") for each in sent] == signals
    assert re.fullmatch(rf"process {process.pid} ended after \d+\.\d s", end)
    written = [(each.action, each.reason) for each in await journal.entries()]
    actions = zip(("reclaim_term", "reclaim_kill"), signals, strict=False)
    assert written[1:-1] == (list(actions) if journaled else [])
    await journal.close()


async def test_a_reclaim_that_is_cut_off_is_written_down(left, tmp_path):
    """Nobody knows then what became of the process."""
    process = sleeper(left, before="trap '' TERM;")
    journal, sent = Journal(tmp_path), asyncio.Event()
    with reclaim_of(process, journal, lambda _: sent.set(), Patience(term_seconds=600.0)) as work:
        task = asyncio.create_task(work.run())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (*_, last) = await journal.entries()
    assert (last.action, last.after) == (
        "reclaim_outcome",
        "interrupted before the result was known",
    )
    await journal.close()


async def test_an_outcome_that_cannot_be_written_is_told(left, tmp_path):
    """The memory is free all the same."""
    process, folder, told = left.start("sleep", "600"), tmp_path / "state", []
    folder.mkdir()
    journal = Journal(folder)

    def tell(text):
        told.append(text)
        if "ended after" in text:
            folder.rename(tmp_path / "away")

    with reclaim_of(process, journal, tell) as work:
        outcome = await work.run()
    assert (outcome.freed, outcome.journaled) == (True, False)
    assert told[-1].startswith("the outcome could not be written to the journal: ")
    await journal.close()
