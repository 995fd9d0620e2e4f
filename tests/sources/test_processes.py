"""What /proc says of a process, from fixture trees and from real processes."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest

from vllm_watch.sources.processes import (
    CMDLINE_BYTES_MAX,
    FRESH_SECONDS,
    ProcessListing,
    ProcReader,
    parse_cgroup,
    parse_cmdline,
    parse_stat,
    parse_status,
)

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """One process of a fixture tree; None leaves the file out."""

    pid: int
    name: str = "python3"
    state: str = "S"
    ppid: int = 1
    flags: int = 0x400000
    cpu_ticks: tuple[int, int] = (300, 200)
    start_ticks: int = 5_000
    cmdline: bytes | None = b"python3\0-m\0vllm\0"
    cgroup: str | None = "0::/kubepods/burstable/podab12/c0ffee\n"
    uid: int = 1000
    nspid: str | None = None

    def write(self, tree):
        folder = tree / str(self.pid)
        folder.mkdir(parents=True, exist_ok=True)
        user, system = self.cpu_ticks
        (folder / "stat").write_text(
            f"{self.pid} ({self.name}) {self.state} {self.ppid} 0 0 0 -1 {self.flags} 0 0 0 0 "
            f"{user} {system} 0 0 20 0 1 0 {self.start_ticks} 1 1\n"
        )
        nspid = self.nspid or str(self.pid)
        (folder / "status").write_text(
            f"Name:\t{self.name}\nUid:\t{self.uid}\t0\t0\t0\nNSpid:\t{nspid}\n"
        )
        for file, content in (("cmdline", self.cmdline), ("cgroup", self.cgroup)):
            if content is not None:
                (folder / file).write_bytes(
                    content if isinstance(content, bytes) else content.encode()
                )


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\nprocesses 7\n")
    return tmp_path


def test_a_process_is_read_in_base_units(tree):
    """Ticks become seconds, the start becomes Unix time, the real user is meant."""
    Row(4711, "VLLM::EngineCor", ppid=4700, cmdline=b"VLLM::EngineCore\0\0\0\0").write(tree)
    facts = ProcReader(tree).read(4711)
    assert (facts.name, facts.cmdline, facts.ppid, facts.state, facts.uid) == (
        "VLLM::EngineCor", ("VLLM::EngineCore",), 4700, "S", 1000,
    )  # fmt: skip
    assert facts.create_time == 1_700_000_000 + 5_000 / TICKS
    assert facts.cpu_seconds == 500 / TICKS
    assert facts.cgroup == "/kubepods/burstable/podab12/c0ffee"


@pytest.mark.parametrize(
    "name", ["a b", "a) R 1", ") S 1 2 (", "((", "tmux: server", "new\nline", "", "\N{SNOWMAN}"]
)
def test_names_do_not_break_the_parse(tree, name):
    """A process names itself, with spaces, parentheses and newlines if it likes."""
    Row(5, name, ppid=3).write(tree)
    facts = ProcReader(tree).read(5)
    assert (facts.name, facts.ppid, facts.state) == (name, 3, "S")


STAT_DAMAGE = [b"", b"12", b"12 (a", b"12 (a) ", b"12 (a) S 1 2", b"x (a) S 1", b")(", b"\0" * 40]


@pytest.mark.parametrize("text", STAT_DAMAGE)
def test_a_damaged_stat_is_no_process(text):
    """A line that is cut off or foreign gives nothing, never half a process."""
    assert parse_stat(text) is None


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (b"", ()),
        (b"\0\0\0", ()),
        (b"vllm\0serve\0m\0", ("vllm", "serve", "m")),
        (b"VLLM::Worker_TP0\0\0\0\0", ("VLLM::Worker_TP0",)),
        (b"sh\0-c\0\0x\0", ("sh", "-c", "", "x")),
        (b"caf\xe9\0", ("caf\N{REPLACEMENT CHARACTER}",)),
        (b"cut off in the mid", ("cut off in the mid",)),
    ],
)
def test_command_lines(text, arguments):
    """Arguments end in NULs; a title leaves a tail of them, a zombie has none."""
    assert parse_cmdline(text) == arguments


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/vllm.service\n", "/system.slice/vllm.service"),
        ("12:memory:/docker/abc\n1:name=systemd:/docker/abc/init\n0::/\n", "/docker/abc/init"),
        ("0::/odd:name:x\n", "/odd:name:x"),
        ("0::/\n", "/"),
        ("", None),
        ("rubbish\n", None),
    ],
)
def test_cgroup_paths(text, path):
    """The most specific path of either version names the container."""
    assert parse_cgroup(text.encode()) == path


def test_status_without_the_lines_we_want_is_unknown():
    """Kernels before 4.1 have no NSpid; malformed numbers are no numbers."""
    assert parse_status(b"Name:\tx\n").pids is None
    assert parse_status(b"Uid:\tmany\nNSpid:\t7 1\n").uid is None


def test_what_is_missing_is_unknown_and_not_empty(tree):
    """Files that cannot be read leave their fields None; the rest stands."""
    Row(9).write(tree)
    for file in ("cmdline", "cgroup", "status"):
        (tree / "9" / file).unlink()
        (tree / "9" / file).mkdir()  # open works, read does not: as for a file that is refused
    facts = ProcReader(tree).read(9)
    assert (facts.name, facts.state) == ("python3", "S")
    assert (facts.cmdline, facts.cgroup, facts.uid, facts.pids) == (None, None, None, None)


@pytest.mark.parametrize("file", ["stat", "cmdline", "cgroup", "status"])
def test_a_process_that_vanishes_between_two_files_is_gone(tree, file):
    """Half of a process that ended is not told."""
    Row(9).write(tree)
    (tree / "9" / file).unlink()
    assert ProcReader(tree).read(9) is None


@pytest.mark.parametrize("entry", ["missing", "file", "empty stat"])
def test_what_is_no_process_is_none(tree, entry):
    """A PID that is not there, or not a folder, or was reaped while being read."""
    if entry == "file":
        (tree / "77").write_text("not a folder")
    if entry == "empty stat":
        Row(77).write(tree)
        (tree / "77" / "stat").write_bytes(b"")
    assert ProcReader(tree).read(77) is None


def test_a_tree_without_boot_time_leaves_the_start_unknown(tree):
    Row(9).write(tree)
    (tree / "stat").write_text("cpu 1 2 3\n")
    assert ProcReader(tree).read(9).create_time is None
    (tree / "stat").unlink()
    assert ProcReader(tree).read(9).create_time is None


def test_reads_are_bounded(tree):
    """A command line of megabytes costs what a long one costs."""
    Row(9, cmdline=b"x" * 3_000_000).write(tree)
    assert len(ProcReader(tree).read(9).cmdline[0]) == CMDLINE_BYTES_MAX


@pytest.fixture
def known(tree):
    """A process that was seen alike twice, and its reader."""
    row, reader = Row(9), ProcReader(tree)
    row.write(tree)
    reader.read(9)
    reader.read(9)
    return row, reader


CHANGES = {  # of a process that is known; is all of it read again?
    "what moves": ({"state": "R", "ppid": 2, "cpu_ticks": (900, 100)}, False),
    "a zombie: who left the VRAM behind is worth more than that it has no arguments": ({"name": "python3 <x>", "state": "Z"}, False),
    "a new title, by exec or setproctitle": ({"name": "VLLM::EngineCor"}, True),
    "another process with the number": ({"start_ticks": 6_000}, True),
}  # fmt: skip


@pytest.mark.parametrize(("change", "again"), CHANGES.values(), ids=CHANGES)
def test_static_facts_are_kept_until_it_is_another(tree, known, change, again):
    row, reader = known
    cmdline = b"" if change.get("state") == "Z" else b"new\0"
    changed = replace(row, cmdline=cmdline, cgroup="0::/new\n", uid=7, **change)
    changed.write(tree)
    facts = reader.read(9)
    assert (facts.state, facts.ppid) == (changed.state, changed.ppid)
    assert facts.cpu_seconds == sum(changed.cpu_ticks) / TICKS
    if again:
        assert (facts.cmdline, facts.cgroup, facts.uid) == (("new",), "/new", 7)
    else:
        assert facts.cmdline == ("python3", "-m", "vllm")


def test_a_process_caught_in_the_midst_of_exec_is_read_again(tree):
    """The kernel sets the new name first and the arguments a moment later."""
    row, reader = Row(9, cmdline=b""), ProcReader(tree)
    row.write(tree)
    for _ in range(3):
        assert reader.read(9).cmdline == ()
    replace(row, cmdline=b"vllm\0serve\0").write(tree)
    assert reader.read(9).cmdline == ("vllm", "serve")


@pytest.mark.parametrize("how", ["gone", "dropped"])
def test_what_is_gone_is_forgotten(tree, known, how):
    """Nothing is remembered of a process that ended, nor of one that nobody asks for."""
    row, reader = known
    if how == "gone":
        (tree / "9").rename(tree / "away")
        assert reader.read(9) is None
        (tree / "away").rename(tree / "9")
    else:
        reader.forget_others({10})
    replace(row, cmdline=b"read again\0").write(tree)
    assert reader.read(9).cmdline == ("read again",)


def test_this_process_is_read_for_real():
    facts = ProcReader().read(os.getpid())
    assert (facts.ppid, facts.uid, facts.state) == (os.getppid(), os.getuid(), "R")
    assert facts.cmdline[0] == sys.orig_argv[0]
    assert 0 <= time.time() - facts.create_time < 24 * 3600
    assert 0 < facts.cpu_seconds <= time.process_time() + 1
    assert facts.pids[0] == os.getpid()


HIDDEN = """
import json, os, sys
from pathlib import Path
from vllm_watch.sources.processes import ProcReader
reader = ProcReader(Path(sys.argv[1]))
seen_by_root = reader.sees_all(), reader.read(1) is not None
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(json.dumps([seen_by_root, [reader.sees_all(), reader.read(1) is not None], reader.has_gpu_open(1)]))
"""


def test_hidepid_hides_others_and_is_noticed(tmp_path):
    """Under hidepid a PID that is not found may well be alive: nothing may be concluded from it."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c",
         f'mount -t proc -o hidepid=2 proc "{tmp_path}" && exec "$@"', "sh",
         sys.executable, "-c", HIDDEN, str(tmp_path)],
        capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": "."}, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "[[true, true], [false, false], null]", done.stderr


def test_a_gpu_that_is_open_is_seen_and_remembered(tree):
    """A descriptor of an NVIDIA device file; other descriptors do not count."""
    Row(9).write(tree)
    fds = tree / "9" / "fd"
    fds.mkdir()
    (fds / "0").symlink_to("/dev/null")
    (fds / "1").symlink_to("socket:[4711]")
    reader = ProcReader(tree)
    reader.read(9)
    assert reader.has_gpu_open(9) is False
    (fds / "33").symlink_to("/dev/nvidia-uvm")
    assert reader.has_gpu_open(9) is True
    (fds / "33").unlink()
    assert reader.has_gpu_open(9) is True  # looked at once: an engine has hundreds of descriptors
    Row(9, start_ticks=9_999).write(tree)
    reader.read(9)
    assert reader.has_gpu_open(9) is False  # another process with its number


def test_descriptors_that_may_not_be_read_are_unknown(tree):
    """Not "has no GPU open"."""
    Row(9).write(tree)
    assert ProcReader(tree).has_gpu_open(9) is None


@pytest.mark.parametrize(
    ("later_s", "seen"), [(0.0, {1}), (FRESH_SECONDS, {1}), (FRESH_SECONDS + 0.1, {1, 2})]
)
def test_a_listing_serves_while_it_is_fresh(tmp_path, later_s, seen):
    """Who asks later sees what began meanwhile."""
    listing = ProcessListing(tmp_path)
    Row(1, "init").write(tmp_path)
    assert set(listing.processes(100.0)) == {1}
    Row(2, "vllm").write(tmp_path)
    assert set(listing.processes(100.0 + later_s)) == seen


def test_a_tree_that_cannot_be_read_has_no_processes(tmp_path):
    """It may be hidden, or no procfs at all."""
    assert ProcessListing(tmp_path / "none").processes(0.0) == {}
