"""Runs one command in a process of its own and, when told to stop, ends it with all that it started.

It is a program, not imported: `python reaper.py SPEC_FD REPORT_FD`. As a child subreaper it becomes the
parent of whatever the command leaves behind, also of what forked twice into another session; so by killing
its children until it has none it reaches all of them. Killed are they when SIGTERM arrives, which comes at
the timeout and, from the kernel, when vllm-watch itself is gone. When the command ends by itself, what it
left running is left alone.
Source: prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG.
"""

import ctypes
import json
import os
import signal
import sys
import time

KILL_SECONDS = 3.0  # SIGKILL takes milliseconds; what is left after this waits in the kernel
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_LOOK_SECONDS = 0.01


class _ToldToStopError(Exception):
    pass


def main(spec_descriptor: int, report_descriptor: int) -> None:
    """Run the command of the spec (argv, environment, parent) and write how it ended."""
    with os.fdopen(spec_descriptor) as file:
        spec = json.load(file)
    report: dict[str, int | str | None] = {"status": None, "unable": None, "left": 0}
    try:
        # First of all, so that no moment is left in which it would end us without a report.
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
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough, also in the midst of killing
    raise _ToldToStopError


def _tie_to(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_PDEATHSIG, signal.SIGTERM)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:
        raise _ToldToStopError  # vllm-watch was gone before the kernel knew whom to tell


def _run(argv: list[str], environment: dict[str, str], report_descriptor: int) -> int:
    os.set_inheritable(report_descriptor, False)
    os.environ.update(environment)  # posix_spawnp looks the program up in our PATH
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    command = os.posix_spawnp(
        argv[0], argv, environment,
        setsid=True, setsigdef=[signal.SIGTERM, *ignored_by_python],
    )  # fmt: skip
    while True:
        pid, status = os.waitpid(-1, 0)  # orphans too: none of them stays a zombie
        if pid == command:
            return os.waitstatus_to_exitcode(status)


def _kill_all() -> int:
    """Kill and reap until no child is left; return how many could not be ended."""
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        # Killing a parent makes its children ours, so each round reaches one generation more.
        for child in _children():
            _kill(child)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return 0
        time.sleep(_LOOK_SECONDS)
    return max(1, len(_children()))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # another user's (sudo): it is counted as left
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
