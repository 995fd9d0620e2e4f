"""A real vLLM on a loopback port: started, hurt and cleaned up.

The engine is the CPU build (`install.sh`) with a random model (`model.py`), in one of two layouts:

- `uni`: API server and EngineCore, the shape of production on one GPU;
- `mp`: API server, EngineCore and a worker, the shape of tensor parallelism. On CPUs its executor
  spins with `sched_yield`, so it is slow beside any neighbour.

By hand: `python -m tests.real_vllm.server [mp]` serves until Ctrl-C.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from tests.ports import free_port

MODEL_NAME = "tiny"
BLOCK_SIZE = 32  # the CPU build refuses 16

READY_SECONDS_MAX = 240.0  # 16 s on an idle machine with two cores
GONE_SECONDS_MAX = 60.0  # 2 s; an API server that shares its core with others ends later
LIFETIME_SECONDS_MAX = (
    3600  # nothing that we start outlives this, even when we are killed ourselves
)

FLAGS = (
    "--served-model-name", MODEL_NAME, "--load-format", "dummy", "--enforce-eager",
    "--block-size", str(BLOCK_SIZE), "--max-num-seqs", "32", "--host", "127.0.0.1",
)  # fmt: skip
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; the block override above sets what is used of it
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
LAYOUTS = {
    "uni": (("--distributed-executor-backend", "uni"), {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}),
    "mp": ((), {}),
}
ROLES = {"VLLM::EngineCore": "engine_core", "VLLM::Worker": "worker"}  # by process title


def find_venv() -> Path:
    """The environment that `install.sh` made; fails with what to do where there is none."""
    default = Path(__file__).parents[2] / ".venv-vllm"
    venv = Path(os.environ.get("REAL_VLLM_VENV", default)).absolute()
    if not (venv / "bin" / "vllm").exists():
        raise RuntimeError(f"no vLLM in {venv}: run tests/real_vllm/install.sh (or make test-vllm)")
    return venv


@dataclass(frozen=True)
class Size:
    """What a server can hold."""

    num_gpu_blocks: int
    max_model_len: int

    def flags(self) -> tuple[str, ...]:
        return (
            "--num-gpu-blocks-override", str(self.num_gpu_blocks),
            "--max-model-len", str(self.max_model_len),
        )  # fmt: skip


USUAL = Size(512, 8192)  # small enough that a few dozen requests fill it
SMALL = Size(128, 2048)  # a few long generations do


class RealVllm:
    """One `vllm serve`, in a process group of its own so that no orphan of it can be missed."""

    def __init__(
        self,
        folder: Path,
        layout: str = "uni",
        *,
        more: tuple[str, ...] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
        model: Mapping[str, Any] | None = None,
        model_folder: Path | None = None,
        ready_seconds_max: float = READY_SECONDS_MAX,
    ) -> None:
        """`more` and `environment` are added to the usual flags and variables; `model`: its config.json, not the usual one."""
        self.venv = find_venv()
        self.log = folder / "vllm.log"
        self._model = model_folder or folder / "model"
        self._layout = layout
        self._flags, self._environment, self._config = more, environment, model
        self._ready_seconds_max = ready_seconds_max
        self.size = USUAL
        self._port = free_port()
        self._leader: subprocess.Popen[bytes] | None = None
        self._pids: dict[str, int] = {}

    @property
    def url(self) -> str:
        """Base URL; it stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.make_model()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def make_model(self) -> None:
        """Write the folder that it serves."""
        python, script = self.venv / "bin" / "python", Path(__file__).with_name("model.py")
        config = [] if self._config is None else [json.dumps(dict(self._config))]
        subprocess.run([python, script, self._model, *config], check=True, timeout=600)

    def start(self) -> None:
        """Launch and return once /health answers 200; fails with the end of the log."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it, and wait for nothing: ranks wait for each other."""
        _, environment = LAYOUTS[self._layout]
        # timeout(1) bounds the life of the whole group. No nice(1): an engine that makes way for its
        # neighbours, the load's client among them, is slower than it was, and would rightly be called so.
        bounded = ("timeout", "--signal=KILL", str(LIFETIME_SECONDS_MAX))
        own = {
            "VLLM_CACHE_ROOT": str(self.venv / "cache"),
            "VLLM_CONFIG_ROOT": str(self.venv / "config"),
        }
        with self.log.open("ab") as log:
            self._leader = subprocess.Popen(
                [*bounded, *self._command()],
                env={**os.environ, **ENVIRONMENT, **environment, **own, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _command(self) -> list[str | Path]:
        """What is launched, in the group that is killed as one."""
        flags, _ = LAYOUTS[self._layout]
        serve = (self.venv / "bin" / "vllm", "serve", self._model, "--port", str(self._port))
        return [*serve, *FLAGS, *self.size.flags(), *flags, *self._flags]

    def wait_ready(self) -> None:
        """Return once /health answers 200; fails with the end of the log."""
        assert self._leader is not None
        deadline = time.monotonic() + self._ready_seconds_max
        while not self.answers():
            if self._leader.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self._leader.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"vLLM not ready in {self._ready_seconds_max:.0f} s:\n{self.log_tail()}"
                )
            time.sleep(0.25)
        # Looked up now: reading the command line of a busy process can take a second.
        self._pids = self.processes()

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """Kill whatever is left of it, stopped and orphaned processes too, and wait until it is gone."""
        if self._leader is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._leader.pid, signal.SIGKILL)
        self._leader.wait(GONE_SECONDS_MAX)
        self.wait_gone()
        self._leader = None

    def restart(self, size: Size = USUAL) -> None:
        """End what is left and start again on the same port."""
        self.stop()
        self.size = size
        self.start()

    def processes(self) -> dict[str, int]:
        """Role ("api_server", "engine_core", "worker") → PID of those that run, orphans too."""
        return {role: pid for pid, argv in self._group() if (role := self._role(argv))}

    def pid(self, role: str) -> int:
        """PID as of the last start."""
        return self._pids[role]

    def kill(self, role: str) -> None:
        """SIGKILL one process."""
        os.kill(self._pids[role], signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        """SIGSTOP one process for the length of the block, then SIGCONT."""
        pid = self._pids[role]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def wait_gone(self) -> None:
        """Return once no process of the group is left; fails after `GONE_SECONDS_MAX`."""
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while left := self._group():
            if time.monotonic() > deadline:
                raise TimeoutError(f"still there: {left}")
            time.sleep(0.05)

    def log_tail(self) -> str:
        """The last 4,000 bytes that vLLM printed."""
        return self.log.read_bytes()[-4000:].decode(errors="replace")

    def _role(self, argv: list[str]) -> str | None:
        if argv[1:3] == [str(self.venv / "bin" / "vllm"), "serve"]:
            return "api_server"
        return next((role for title, role in ROLES.items() if argv[0].startswith(title)), None)

    def _group(self) -> list[tuple[int, list[str]]]:
        """PID and command line of every living process of the group."""
        if self._leader is None:
            return []
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended while we looked
                # pid (comm) state ppid pgrp …, where comm may hold spaces and parentheses
                state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == self._leader.pid and state not in "ZX":
                    argv = (folder / "cmdline").read_text(errors="replace").split("\0")
                    found.append((int(folder.name), argv))
        return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, RealVllm(Path(scratch), *sys.argv[1:]) as vllm:
        print(f"{vllm.url} {vllm.processes()} log: {vllm.log}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
