"""A disk that fails at any write of an attempt: nothing is done that is not written, nothing done is lost.

Full: a file system of 400 KiB, filled up. Failing or read-only: a library between SQLite and the kernel
(failing_disk.c) that answers EIO or EROFS to each write and flush of the state file.
"""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.restart.dispatching import Story
from tests.restart.watcher import Watchers, on_disk
from tests.restart.world import hanging
from tests.state.test_journal import ATTEMPT
from vllm_watch.restart import dispatcher
from vllm_watch.state.journal import Journal

SOURCE = Path(__file__).parent / "failing_disk.c"
FAULTS = ("ENOSPC", "EIO", "EROFS")
AT_ONCE = 3

LEFT = replace(ATTEMPT, state="calling")

WRITES = ("version", "decision", "intent", "calling", "verifying", "helped")
"""What an attempt writes, in order."""


@contextmanager
def small(folder, fault):
    """The state folder, on a file system that can be filled where it is to be full."""
    folder.mkdir()
    if fault != "ENOSPC":
        yield
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.fail(f"this test mounts a small file system, as root: {mounted.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def _trouble(watchers, folder, fault, number):
    """One fault at one write, which lasts until nothing more happens."""
    with hanging(folder) as server, small(folder / "state", fault):
        status = watchers.run(server, f"before write {number + 1}", fault)
        log = (folder / "log").read_text()
        said = json.loads((folder / "report").read_text()) if status == 0 else {}
        return SimpleNamespace(
            fault=fault, write=WRITES[number], status=status, log=log,
            called=WRITES[number] in ("verifying", "helped"),  # the hook, before the disk broke
            broken=said.get("broken", {}),  # what was so while the disk was broken
            at_calls=server.lines("on_disk"),  # states on disk when the hook was called
            ended=server.lines("ended"),  # attempts that ended a server
            attempts=on_disk(folder) if status == 0 else (),  # once the disk was mended
        )  # fmt: skip


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Programs whose disk can be made to fail."""
    folder = tmp_path_factory.mktemp("shim")
    shim = folder / "failing_disk.so"
    built = subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", shim, SOURCE, "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pool = [Watchers(LD_PRELOAD=str(shim)) for _ in range(AT_ONCE)]
    yield pool
    for each in pool:
        each.close()


@pytest.fixture(scope="module")
def troubles(pool, tmp_path_factory):
    """What came of each fault at each write."""
    folder = tmp_path_factory.mktemp("troubles")
    cases = [(fault, number) for fault in FAULTS for number in range(len(WRITES))]

    def share(mine):
        return [
            _trouble(pool[mine], folder / f"{fault}-{number}", fault, number)
            for fault, number in cases[mine::AT_ONCE]
        ]

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [trouble for some in threads.map(share, range(AT_ONCE)) for trouble in some]


def test_every_fault_was_lived_through(troubles):
    """No watcher fell over, and once the disk was mended each came to the same end, without a new start."""
    assert {(each.fault, each.write): each.log for each in troubles if each.status != 0} == {}
    for trouble in troubles:
        assert trouble.attempts[-1].state == "helped", trouble
        assert not any(each.open for each in trouble.attempts), trouble


def test_nothing_is_done_that_is_not_written(troubles):
    """Whatever breaks, a next watcher would have known of each call before it was made."""
    for trouble in troubles:
        assert set(trouble.at_calls) == {"calling"}, trouble
        if not trouble.called and trouble.fault != "ENOSPC":
            assert trouble.broken["called"] == 0, trouble


def test_request_waits_for_the_disk_and_it_is_said(troubles):
    """Before the call there is no act; it is an error in the log or a refusal that names the journal."""
    for trouble in troubles:
        if not trouble.called and trouble.fault != "ENOSPC":
            assert trouble.broken["waiting"] == 1, trouble
            said = ("restart_not_possible", "gate=journal", "not written to the journal")
            assert any(each in trouble.log for each in said), trouble


def test_what_was_done_goes_on_and_is_written_later(troubles):
    """After the call it is verified all the same, the trouble is an error in the log, and the end is kept."""
    for trouble in (trouble for trouble in troubles if trouble.called):
        assert trouble.broken == {"state": "helped", "called": 2, "waiting": 0}, trouble
        assert "journal_failed" in trouble.log, trouble
        assert [each.state for each in trouble.attempts] == ["helped"], trouble


@pytest.mark.parametrize("fault", FAULTS)
def test_watcher_that_dies_with_a_broken_disk(pool, server, tmp_path, fault):
    """The disk says at least that the hook may have been called: the next one verifies, and calls nothing."""
    with small(tmp_path / "state", fault):
        point = f"before write {WRITES.index('verifying') + 1}"
        assert pool[0].run(server, point, fault, dies=True) == -9
        for name in ("fault", "state/filler"):
            (tmp_path / name).unlink(missing_ok=True)
        (left,) = on_disk(tmp_path)
        # What was not flushed may be there or not; what was said to be there is.
        assert left.state in ("calling", "verifying", "helped")
        called = server.lines("called")
        assert pool[0].run(server, "") == 0
        (ended,) = on_disk(tmp_path)
        assert (ended.state, ended.called_t) == ("helped", left.called_t)
        assert server.lines("called") == called


async def test_read_only_at_the_start(server, monkeypatch):
    """A file system that is mounted read-only refuses; once it can be written it goes on, with what was left."""
    monkeypatch.setattr(dispatcher, "ASK_SECONDS", 0.05)
    state = server.folder / "state"
    with small(state, "ENOSPC"):
        journal = Journal(state)
        await journal.write(replace(LEFT, began_t=time.time(), called_t=time.time()))
        await journal.close()
        remount(state, "ro")
        async with Story(server) as story:
            decision = await story.decided()
            assert (decision.check, "cannot be written" in decision.text) == ("journal", True)
            remount(state, "rw")
            await story.until(lambda: story.dispatcher.blocked[("chat-0", "cooldown")])
            assert await story.states() == ["uncertain"]
        assert server.lines("called") == []


def remount(folder, how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def test_never_twice(troubles):
    """No fault makes a second restart of one, or refills the budget."""
    for trouble in troubles:
        assert len(trouble.ended) == 1, trouble
        assert [each.state for each in trouble.attempts if each.spent] == ["helped"], trouble
