"""A real GPU, its driver and what nvidia-smi says of it. Without one these tests fail: nothing is skipped."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader

HERE = Path(__file__).parent
PROGRAM = HERE / "cuda_program.py"
CAPTURE = HERE.parent / "sources/captures/0.32.0-v1-cpu-idle.txt"

Started = subprocess.Popen[str]
Start = Callable[..., Started]


def nvidia_smi(*arguments: str) -> list[list[str]]:
    """What it says, as rows of words, without units."""
    done = subprocess.run(
        ["nvidia-smi", *arguments, "--format=csv,noheader,nounits"],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program of ours, waits until it holds its memory, and ends it with its children at the end."""
    found: list[Started] = []

    def start(*words: object) -> Started:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        found.append(process)
        assert process.stdout
        process.ready = process.stdout.readline()  # type: ignore[attr-defined]
        assert process.ready.startswith("READY"), "is there a GPU, and a driver?"  # type: ignore[attr-defined]
        return process

    yield start
    for process in found:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def cuda(start: Start) -> Start:
    """Starts a CUDA program: `cuda("--mib", 2048)`."""
    return lambda *words: start(PROGRAM, *words)


class Server:
    """A server with an engine core on the GPU."""

    def __init__(self, process: Started, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.core = int(process.ready.split()[1])  # type: ignore[attr-defined]

    def kill(self) -> None:
        """SIGKILL to the API server alone."""
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def serve(start: Start, tmp_path: Path) -> Callable[[int], Server]:
    """Starts a server whose core holds so many MiB."""

    def serve(mib: int) -> Server:
        port = free_port()
        script = tmp_path / "vllm"
        shutil.copy(HERE / "server_program.py", script)
        process = start(script, "serve", "m", "--port", port, "--", CAPTURE, PROGRAM, mib)
        return Server(process, port)

    return serve


@pytest.fixture
async def source() -> AsyncIterator[NvmlSource]:
    """Reads the GPUs of this machine."""
    source = NvmlSource(GpuSettings(enabled="on"), ProcReader())
    yield source
    await asyncio.wait_for(source.close(), 30)
