"""Real processes as a dead vLLM leaves them behind: started, named, orphaned, and ended at the end.

with Leftovers() as left:
    server, (core,) = left.server("VLLM::EngineCore")
    left.kill(server)                   # the core lives on, as the child of whatever takes it over
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PATIENCE_SECONDS = 30.0

# A server, by its command line; its children are named as they are told to be, and wait.
_SERVER = """
import subprocess, sys, time
for script in sys.argv[4:]:
    print(subprocess.Popen(["bash", "-c", script]).pid, flush=True)
time.sleep(600)
"""


class Leftovers:
    """Processes in sessions of their own, all of which are gone when the block ends."""

    def __init__(self):
        self._leaders = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for leader in self._leaders:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)
            leader.wait(PATIENCE_SECONDS)
            if leader.stdout:
                leader.stdout.close()

    def start(self, *command, **how):
        """Any process."""
        leader = subprocess.Popen(command, start_new_session=True, **how)
        self._leaders.append(leader)
        return leader

    def server(self, *titles, before=""):
        """A `vllm serve` and its children by title; `before` is shell that each runs first."""
        scripts = [f"{before} exec -a {title} sleep 600" for title in titles]
        leader = self.start(
            "bash", "-c", 'exec -a "$0" "$0" -c "$@"', sys.executable, _SERVER, "vllm", "serve", "m", *scripts,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        pids = [int(leader.stdout.readline()) for _ in titles]
        for pid, title in zip(pids, titles, strict=True):
            wait_for(lambda pid=pid, title=title: _is_titled(pid, title))
        return leader, pids

    def orphans(self, *titles, before=""):
        """Children whose server was killed with SIGKILL; their PIDs."""
        leader, pids = self.server(*titles, before=before)
        leader.kill()
        leader.wait(PATIENCE_SECONDS)
        return pids

    def orphans_with_child(self, title, child):
        """One orphan that has a child of its own."""
        inner = f"exec -a {child} sleep 600"
        program = 'import subprocess,sys,time; subprocess.Popen(["bash","-c",sys.argv[1]]); time.sleep(600)'
        before = f"exec -a {title} {sys.executable} -c '{program}' '{inner}'; "
        (pid,) = self.orphans(title, before=before)
        children = Path(f"/proc/{pid}/task/{pid}/children")
        wait_for(lambda: _is_titled(_first(children), child))
        return Orphan(pid, _first(children))


class Orphan(NamedTuple):
    """PIDs of an orphan and its child."""

    pid: int
    child: int


def _is_titled(pid, title):
    """Has its shell become what it is to be? The shell's arguments name the title, too."""
    return _read(pid, "cmdline").startswith(title.encode())


def _first(children):
    return int((children.read_text().split() or ["0"])[0])


def state(pid):
    """The letter of /proc/PID/stat; None where the process is gone."""
    text = _read(pid, "stat")
    return text.rpartition(b")")[2].split()[0].decode() if text else None


def lives(pid):
    """Is it there, and no zombie?"""
    return state(pid) not in (None, "Z", "X")


def wait_for(true, seconds=PATIENCE_SECONDS):
    """Return once it is so; fails after `seconds`."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come to be"
        time.sleep(0.01)


def _read(pid, name):
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
