"""Run a command, and on SIGTERM kill it and all its descendants.

This is a program: `python reaper.py SPEC_FD REPORT_FD`. It is a child subreaper, so orphaned
descendants become its children. vllm-watch sends SIGTERM at the timeout, and the kernel sends it
when vllm-watch dies. If the command ends by itself, its other processes continue. Source:
prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

import ctypes
import json
import os
import signal
import sys
import time

KILL_SECONDS = 3.0  # a process that survives SIGKILL for longer hangs in the kernel
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_POLL_SECONDS = 0.01


class _ToldToStopError(Exception):
    pass


def main(spec_descriptor: int, report_descriptor: int) -> None:
    """Run the command of the spec and write the report."""
    with os.fdopen(spec_descriptor) as file:
        spec = json.load(file)
    report: dict[str, int | str | None] = {"status": None, "unable": None, "left": 0}
    try:
        # Do this first, so that SIGTERM never ends us without a report.
        signal.signal(signal.SIGTERM, _stop)
        _tie_to(spec["parent"])
        report["status"] = _run(spec["argv"], spec["environment"], report_descriptor)
    except _ToldToStopError:
        report["left"] = _kill_all()
    except OSError as error:
        report["unable"] = error.strerror or str(error)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(report_descriptor, json.dumps(report).encode())


def _stop(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _ToldToStopError


def _tie_to(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:
        raise _ToldToStopError  # vllm-watch died before PDEATHSIG was set


def _run(argv: list[str], environment: dict[str, str], report_descriptor: int) -> int:
    os.set_inheritable(report_descriptor, False)
    os.environ.update(environment)
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    command = os.posix_spawnp(
        argv[0], argv, environment,
        setsid=True, setsigdef=[signal.SIGTERM, *ignored_by_python],
    )  # fmt: skip
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == command:
            return os.waitstatus_to_exitcode(status)


def _kill_all() -> int:
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        # Children of a killed process become ours, so each round reaches the next generation.
        for child in _children():
            _kill(child)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return 0
        time.sleep(_POLL_SECONDS)
    return max(1, len(_children()))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # a process of another user (sudo) counts as left
        return


def _children() -> list[int]:
    pids = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    return [int(pid) for pid in pids if _parent_of(pid) == os.getpid()]


def _parent_of(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
