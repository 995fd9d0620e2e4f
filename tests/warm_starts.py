"""`python -m vllm_watch …` of the tests, forked from a process that has imported it: most of a start is the import.

`subprocess` asks here instead of the kernel. Whoever forks is a child of the worker that runs the tests, and hands what
it forks to that worker, who is a subreaper meanwhile: so it is the worker's own child, with its pipes, session, signals and
exit status, and nobody sees a difference, but for the command line in /proc. COLD is for the tests that look there or try
a start itself; the first starts of a worker are cold, too.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.nvml_stub import LIBRARY as DRIVER

ROOT = Path(__file__).parents[1]
COLD = (sys.executable, "-s", "-m", "vllm_watch")
MODULES = ("vllm_watch", "tests.notify.killed", "tests.restart.hooks.gate_watcher")
COLD_AT_FIRST = 1  # a file that starts one alone would wait for the import twice
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_REQUEST_BYTES_MAX = 1 << 20
# What the interpreter, its libraries or the linker read once, as they start.
_READ_ONCE = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "SSL_")
_LIBRARIES = "LD_LIBRARY_PATH"
# Where the arguments of _posixsubprocess.fork_exec stand.
_ARGV, _PASS_FDS, _CWD, _ENV = 0, 3, 4, 5
_STREAMS = (6, 9, 11)
_NEW_SESSION, _GROUP, _USER, _PREEXEC = 15, 16, slice(17, 21), 21


class WarmStarts:
    """What stands in the place of fork_exec: forks what it can, and begins everything else as ever."""

    def __init__(self) -> None:
        self._begin = subprocess._fork_exec  # type: ignore[attr-defined]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._one_at_a_time = threading.Lock()
        self._seen = 0
        self._asks: socket.socket | None = None
        self._ready = False

    def install(self) -> None:
        subprocess._fork_exec = self._fork_exec  # type: ignore[attr-defined]

    def remove(self) -> None:
        """What forks ends once nobody can ask it any more."""
        subprocess._fork_exec = self._begin  # type: ignore[attr-defined]
        if self._asks is not None:
            self._asks.close()
            self._process.wait()

    def _fork_exec(self, *arguments: Any) -> int:
        asked = _asked(arguments)
        if asked is not None:
            with self._one_at_a_time:
                if self._is_ready():
                    own = enumerate(arguments[each] for each in _STREAMS)
                    return self._fork(asked, [at if given == -1 else given for at, given in own])
        return int(self._begin(*arguments))

    def _is_ready(self) -> bool:
        self._seen += 1
        if self._asks is None:
            if self._seen > COLD_AT_FIRST:
                self._start()
            return False
        if not self._ready and select.select([self._asks], [], [], 0)[0]:
            self._ready = bool(self._asks.recv(16))
            assert self._ready, "tests.warm_starts has ended by itself: its error is on stderr"
        return self._ready

    def _start(self) -> None:
        self._asks, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_starts"], stdin=theirs, stdout=subprocess.DEVNULL,
                cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def _fork(self, asked: dict[str, Any], files: Sequence[int]) -> int:
        assert self._asks is not None
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._asks, [json.dumps(asked).encode()], files)
            return int(self._asks.recv(16))
        finally:
            self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _asked(arguments: Sequence[Any]) -> dict[str, Any] | None:
    argv = [os.fsdecode(each) for each in arguments[_ARGV]]
    if argv[:2] != [sys.executable, "-m"] or argv[2] not in MODULES:
        return None
    cwd = os.fsdecode(arguments[_CWD] or os.getcwd())
    given = arguments[_ENV]
    environ = (
        dict(os.environ)
        if given is None
        else dict(os.fsdecode(each).split("=", 1) for each in given)
    )
    special = any(each not in (None, -1) for each in (*arguments[_USER], arguments[_PREEXEC]))
    # Whatever else is on it may hold a sitecustomize, which only a start of its own reads.
    trees = {Path(each) for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each}
    if special or len(arguments[_PASS_FDS]) > 1 or (trees or {Path(cwd)}) != {ROOT}:
        return None
    if Path(cwd, "vllm_watch").is_dir() and Path(cwd) != ROOT:  # another tree, which comes first
        return None
    if _read_once(environ) != _read_once(dict(os.environ)):
        return None
    return {
        "module": argv[2], "arguments": argv[3:], "cwd": cwd, "environ": environ,
        "session": bool(arguments[_NEW_SESSION]), "group": arguments[_GROUP],
        "ignores_ctrl_c": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    }  # fmt: skip


def _read_once(environ: dict[str, str]) -> dict[str, str]:
    apart = ("PYTHONPATH", _LIBRARIES)  # the tree is compared, and the driver is loaded
    return {k: v for k, v in environ.items() if k.startswith(_READ_ONCE) and k not in apart}


def _import_all() -> None:
    from tests.notify import telling  # noqa: F401, PLC0415
    from vllm_watch.cli.helpers.commands import COMMANDS, load  # noqa: PLC0415

    for name in COMMANDS:
        load(name)
    load_later = (
        "vllm_watch.restart.restarts", "vllm_watch.notify.notifications", "vllm_watch.clients.kubernetes",
        "vllm_watch.discovery.kubernetes", "apscheduler.schedulers.asyncio", "vllm_watch.lab.live", "pynvml",
    )  # fmt: skip
    for name in load_later:
        importlib.import_module(name)
    sys.modules.pop("vllm_watch.__main__", None)  # it is run


def _forked(asks: socket.socket) -> dict[str, Any]:
    """Forks one for each request; returns in what was forked, with its request."""
    while True:
        data, files, _, _ = socket.recv_fds(asks, _REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        heard, says = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(says, str(pid).encode())
                os._exit(0)
            os.close(heard)
            os.close(says)
            asks.close()
            return json.loads(data) | {"files": files}
        os.close(says)
        for file in files:
            os.close(file)
        os.waitpid(between, 0)  # from here on it is the worker's child
        asks.send(os.read(heard, 16))
        os.close(heard)


def _become(asked: dict[str, Any]) -> None:
    if asked["session"]:
        os.setsid()
    elif asked["group"] >= 0:
        os.setpgid(0, asked["group"])
    for at, file in enumerate(asked["files"]):
        os.dup2(file, at)
    for file in asked["files"]:
        os.close(file)
    own = signal.SIG_IGN if asked["ignores_ctrl_c"] else signal.default_int_handler
    signal.signal(signal.SIGINT, own)
    os.environ.clear()
    os.environ.update(asked["environ"])
    for folder in filter(None, asked["environ"].get(_LIBRARIES, "").split(os.pathsep)):
        if Path(folder, DRIVER).exists():
            ctypes.CDLL(os.path.join(folder, DRIVER))  # the linker has read its variable already
    os.chdir(asked["cwd"])
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding=encoding, closefd=False)  # type: ignore[misc]
    out = os.fdopen(1, "w", encoding=encoding, closefd=False)
    out.reconfigure(line_buffering=out.isatty(), write_through="PYTHONUNBUFFERED" in os.environ)
    err = os.fdopen(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)
    err.reconfigure(line_buffering=True)
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc]
    sys.path[0] = asked["cwd"]
    sys.argv[1:] = asked["arguments"]


def _serve() -> dict[str, Any]:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the worker
    asks = socket.socket(fileno=os.dup(0))
    os.set_inheritable(asks.fileno(), False)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    _import_all()
    gc.collect()
    gc.freeze()
    asks.send(b"ready")
    return _forked(asks)


if __name__ == "__main__":
    request = _serve()
    _become(request)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
