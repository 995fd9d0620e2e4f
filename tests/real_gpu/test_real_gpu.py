"""NVML as it is: what we read of a real GPU is what nvidia-smi says, and what a real CUDA program does to it.

Without a GPU and its driver these tests fail: nothing is skipped.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_process import DaemonProcess, daemon
from tests.leftovers import lives
from tests.ports import free_port
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.settings.stages import GpuSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader

pytestmark = pytest.mark.real_gpu

HERE = Path(__file__).parent
PROGRAM = HERE / "cuda_program.py"
CAPTURE = HERE.parent / "sources/captures/0.32.0-v1-cpu-idle.txt"

Started = subprocess.Popen[str]
Start = Callable[..., Started]

MIB = 2**20
HELD_MIB = 2048
CONTEXT_MIB_MAX = 1024  # what CUDA itself takes of a GPU, beside what a program asks for
PATIENCE_SECONDS = 60.0
QUICK = {
    "VLLM_WATCH_GPU__ENABLED": "on",
    "VLLM_WATCH_GPU__INTERVAL_SECONDS": "1",
    "VLLM_WATCH_DETECTORS__STALE_VRAM__ORPHAN_SECONDS": "2",
}


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


async def first(source: NvmlSource) -> GpuSample:
    reading = await source.read()
    assert (reading.status, reading.text) == ("ok", "")
    assert reading.gpus
    return reading.gpus[0]


async def until(source: NvmlSource, true: Callable[[GpuSample], bool]) -> GpuSample:
    """Look four times a second until it holds."""
    deadline_s = time.monotonic() + PATIENCE_SECONDS
    while not true(gpu := await first(source)):
        assert time.monotonic() < deadline_s, gpu
        await asyncio.sleep(0.25)
    return gpu


def gpus_of(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Of /api/v1/status; none before the first poll."""
    return list((status["gpus"] or {}).get("gpus") or ())


def holds(pid: int) -> Callable[[GpuSample], bool]:
    return lambda gpu: any(each.pid == pid for each in gpu.processes or ())


def vllm_watch(*words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vllm_watch", *map(str, words)], env=os.environ | environment,
        capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def held_by(done: "subprocess.CompletedProcess[str]") -> dict[int, dict[str, Any]]:
    """PID → holder."""
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    return {holder["pid"]: holder for gpu in said["gpus"] for holder in gpu["holders"]}


async def test_what_is_read_is_what_nvidia_smi_says(source: NvmlSource) -> None:
    """Identity, memory, limits and clocks to the unit; what moves by itself within bounds."""
    gpu = await first(source)
    rows = nvidia_smi(
        "--query-gpu=index,uuid,name,memory.total,memory.reserved,power.limit,clocks.max.sm,"
        "temperature.gpu,power.draw,ecc.errors.uncorrected.volatile.total,fan.speed"
    )
    index, uuid, name, total, reserved, limit, clock_max, celsius, watts, ecc, fan = rows[0]
    assert (str(gpu.index), gpu.uuid, gpu.name) == (index, uuid, name)
    assert gpu.memory_total_bytes == pytest.approx(int(total) * MIB, abs=MIB)
    assert gpu.memory_reserved_bytes == pytest.approx(int(reserved) * MIB, abs=MIB)
    assert gpu.power_limit_watts == pytest.approx(float(limit), abs=0.01)
    assert gpu.sm_clock_max_hz == float(clock_max) * 1e6
    assert gpu.temperature_celsius == pytest.approx(float(celsius), abs=5)
    assert gpu.power_watts == pytest.approx(float(watts), abs=60)
    assert gpu.fan_ratio == (pytest.approx(int(fan) / 100, abs=0.05) if fan.isdigit() else None)
    assert gpu.ecc_uncorrected == (int(ecc) if ecc.isdigit() else None)
    assert gpu.memory_used_bytes is not None
    assert gpu.memory_used_bytes < gpu.memory_total_bytes - gpu.memory_reserved_bytes  # type: ignore[operator]
    assert gpu.utilization_ratio is not None
    assert gpu.throttle_reasons is not None
    assert gpu.xid_errors == ()
    assert gpu.lost is False


async def test_a_holder_is_named_with_what_it_holds(source: NvmlSource, cuda: Start) -> None:
    """Its PID, command line, kind and memory; it is gone with its process, and the memory with it."""
    before = await first(source)
    program = cuda("--mib", HELD_MIB)
    gpu = await until(source, holds(program.pid))
    (holder,) = (each for each in gpu.processes or () if each.pid == program.pid)
    assert holder.type == "compute"
    assert PROGRAM.name in " ".join(holder.cmdline or ())
    assert (holder.pid_local, holder.uid) == (program.pid, os.getuid())
    assert HELD_MIB * MIB <= (holder.used_bytes or 0) <= (HELD_MIB + CONTEXT_MIB_MAX) * MIB
    said = {int(pid): int(mib) for pid, mib in nvidia_smi("--query-compute-apps=pid,used_memory")}
    assert said[program.pid] * MIB == pytest.approx(holder.used_bytes, abs=MIB)
    grown = (gpu.memory_used_bytes or 0) - (before.memory_used_bytes or 0)
    assert grown >= HELD_MIB * MIB

    program.kill()
    program.wait(30)
    after = await until(source, lambda gpu: not holds(program.pid)(gpu))
    assert (after.memory_used_bytes or 0) <= (gpu.memory_used_bytes or 0) - HELD_MIB * MIB


async def test_who_computes_is_seen_and_who_only_holds_is_not(
    source: NvmlSource, cuda: Start
) -> None:
    """Of two programs on one GPU: utilization, clock and power of the GPU, SM utilization of the one process."""
    idle = cuda("--mib", 256)
    quiet = await until(source, holds(idle.pid))
    busy = cuda("--mib", 256, "--busy")

    def computes(gpu: GpuSample) -> bool:
        ratios = {each.pid: each.sm_utilization_ratio for each in gpu.processes or ()}
        return (ratios.get(busy.pid) or 0) > 0.5 and (gpu.utilization_ratio or 0) > 0.9

    gpu = await until(source, computes)
    ratios = {each.pid: each.sm_utilization_ratio for each in gpu.processes or ()}
    assert not ratios[idle.pid]
    assert (gpu.power_watts or 0) > (quiet.power_watts or 0)
    assert (gpu.sm_clock_hz or 0) > 0.3 * (gpu.sm_clock_max_hz or 0)
    assert "gpu_idle" not in (gpu.throttle_reasons or ())


async def test_an_xid_of_a_broken_kernel_is_told_once(source: NvmlSource, cuda: Start) -> None:
    """A write to nobody's address: the driver's event is taken by the next poll, and by that alone."""
    await first(source)  # listens from here
    program = cuda("--mib", 64, "--fault")
    assert await asyncio.to_thread(program.wait, 60) == 3
    gpu = await until(source, lambda gpu: bool(gpu.xid_errors))
    assert set(gpu.xid_errors or ()) <= {13, 31}, "an exception of the engine, or a page fault"
    again = await first(source)
    assert again.xid_errors == ()


def test_the_command_judges_an_orphan_and_frees_its_memory(
    serve: Callable[[int], Server], tmp_path: Path
) -> None:
    """A served core is vLLM's and refused; its server killed, it is stale, is ended, and the memory comes back."""
    server = serve(HELD_MIB)
    state = {"VLLM_WATCH_STATE_DIR": str(tmp_path / "state")}
    found = vllm_watch("gpus", "--json")
    assert (found.returncode, held_by(found)[server.core]["verdict"]) == (0, "vllm"), found.stdout
    refused = vllm_watch("gpus", "--reclaim", server.core, "--yes", **state)
    assert refused.returncode == 1
    assert lives(server.core)

    server.kill()
    found = vllm_watch("gpus", "--json")
    holder = held_by(found)[server.core]
    assert (found.returncode, holder["verdict"], holder["reason"]) == (
        1, "stale", "orphaned_worker",
    ), found.stdout  # fmt: skip
    done = vllm_watch("gpus", "--reclaim", server.core, "--yes", "--json", **state)
    said = json.loads(done.stdout)
    assert (done.returncode, said["freed"]) == (0, True), done.stdout + done.stderr
    assert said["gpus"][0]["held_bytes"] >= HELD_MIB * MIB
    assert not lives(server.core)


async def incidents_of(running: DaemonProcess) -> dict[str, dict[str, Any]]:
    """Kind → incident, of those that are open."""
    said = json.loads((await running.get("/api/v1/incidents"))[1])
    return {each["kind"]: each for each in said["incidents"] if each["phase"] != "closed"}


async def test_an_xid_of_somebody_elses_program_wakes_nobody(
    serve: Callable[[int], Server], cuda: Start
) -> None:
    """A notebook's broken kernel beside an engine that answers: a ticket that names the code, and no restart."""
    server = serve(HELD_MIB)
    async with daemon("--target", server.url, environ=QUICK) as running:
        await running.until(lambda status: bool(gpus_of(status)), PATIENCE_SECONDS)
        program = cuda("--mib", 64, "--fault")
        assert await asyncio.to_thread(program.wait, 60) == 3
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "gpu_fault" not in (found := await incidents_of(running)):
                await asyncio.sleep(0.25)
        fault = found["gpu_fault"]
        assert set(found) == {"gpu_fault"}
        assert (fault["severity"], fault["restart_advised"]) == ("ticket", False)
        assert "Xid " in fault["summary"]


async def test_the_daemon_ties_a_gpu_to_its_server_and_tells_what_it_leaves(
    serve: Callable[[int], Server],
) -> None:
    """The GPU names its target; after SIGKILL to the server it tells of the memory, until that is free."""
    server = serve(HELD_MIB)
    async with daemon("--target", server.url, environ=QUICK) as running:

        def ours(status: dict[str, Any]) -> dict[str, Any] | None:
            holders = [each for gpu in gpus_of(status) for each in gpu["processes"] or ()]
            return next((each for each in holders if each["pid"] == server.core), None)

        status = await running.until(
            lambda status: (
                (ours(status) or {}).get("verdict") == "vllm"
                and any(gpu["targets"] for gpu in gpus_of(status))
            ),
            PATIENCE_SECONDS,
        )
        assert await incidents_of(running) == {}
        server.kill()
        status = await running.until(
            lambda status: (ours(status) or {}).get("verdict") == "stale", PATIENCE_SECONDS
        )
        assert (ours(status) or {})["reason"] == "orphaned_worker"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not {"engine_down", "stale_vram"} <= set(await incidents_of(running)):
                await asyncio.sleep(0.25)
        os.kill(server.core, signal.SIGKILL)
        await running.until(lambda status: ours(status) is None, PATIENCE_SECONDS)


# Runs in a PID namespace of its own: a program on the GPU inside it, and what our command says there.
INSIDE = """
import subprocess, sys
program = subprocess.Popen([sys.executable, {program!r}, "--mib", "512"], stdout=subprocess.PIPE, text=True)
assert program.stdout.readline() == "READY\\n"
print(program.pid)
print(subprocess.run([sys.executable, "-m", "vllm_watch", "gpus", "--json"], capture_output=True, text=True).stdout)
program.kill()
"""


async def test_inside_a_pid_namespace_only_its_own_are_listed_and_named(
    source: NvmlSource, cuda: Start
) -> None:
    """As docs/gpu.md says of drivers from 570; needs root. Who is outside is memory that nobody accounts for."""
    reading = await source.read()
    assert int((reading.driver_version or "0").split(".")[0]) >= 570, reading.driver_version
    outside = cuda("--mib", HELD_MIB)
    await until(source, holds(outside.pid))
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", INSIDE.format(program=str(PROGRAM))],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    first_line, _, said = done.stdout.partition("\n")
    (gpu,) = json.loads(said)["gpus"]
    (holder,) = gpu["holders"]
    assert holder["pid"] == int(first_line), done.stderr
    assert 512 * MIB <= holder["used_bytes"] <= (512 + CONTEXT_MIB_MAX) * MIB
    assert PROGRAM.name in str(holder["command"]), holder
    assert gpu["unaccounted_bytes"] >= HELD_MIB * MIB, gpu


async def test_the_watcher_itself_holds_nothing(source: NvmlSource) -> None:
    """Reading makes no CUDA context: nothing is listed of it, and no memory is taken."""
    before = await first(source)
    async with daemon(environ=QUICK) as running:
        await running.until(lambda status: bool(gpus_of(status)), PATIENCE_SECONDS)
        gpu = await first(source)
        assert not holds(running.process.pid)(gpu)
        assert not holds(os.getpid())(gpu)
        assert gpu.memory_used_bytes == before.memory_used_bytes


def test_a_user_without_rights_sees_who_holds_memory(cuda: Start) -> None:
    """NVML and /proc tell any user of other users' programs: no root is needed."""
    program = cuda("--mib", HELD_MIB)
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "gpus", "--json"], user="nobody", cwd="/",
        env=os.environ | {"HOME": "/"}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    holder = held_by(done)[program.pid]
    assert holder["used_bytes"] >= HELD_MIB * MIB, done.stderr
    assert PROGRAM.name in str(holder["command"])
