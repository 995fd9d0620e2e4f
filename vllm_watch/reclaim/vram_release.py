"""Wait until the driver has released the GPU memory of ended processes.

A zombie keeps its GPU memory, and a CUDA context can outlive its process. Therefore, the memory
that belongs to no listed process is also compared.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

from vllm_watch.samples.gpu import GpuReading, GpuSample, ProcessSample
from vllm_watch.signals.holders import track
from vllm_watch.signals.holders.judge import BASE_BYTES
from vllm_watch.support.quantities import size

DEADLINE_SECONDS = 30.0
"""Maximum seconds to wait. A driver frees the memory within seconds of the process's end."""

INTERVAL_SECONDS = 0.5

LEFT_BYTES_MAX = BASE_BYTES
"""This much memory may remain, because the driver's own use varies by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The memory to reclaim on one GPU or MIG slice, and the result."""

    gpu: GpuSample  # before the end of the processes
    held: tuple[ProcessSample, ...]
    after_bytes: int | None = None  # used on the whole GPU
    released: bool | None = None  # None if unknown
    still: tuple[str, ...] = ()  # remaining holders, as text

    @property
    def held_bytes(self) -> int | None:
        held = [each.used_bytes for each in self.held]
        return None if None in held else sum(bytes_ or 0 for bytes_ in held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Result for all claims."""

    gpus: tuple[Claim, ...]
    waited_seconds: float = 0.0

    @property
    def released(self) -> bool | None:
        """False if one GPU did not release the memory; None if unknown."""
        found = [each.released for each in self.gpus]
        if False in found:
            return False
        return None if None in found else True

    @property
    def still(self) -> tuple[str, ...]:
        return tuple(f"GPU {each.gpu.index}: {text}" for each in self.gpus for text in each.still)


def claims(gpus: Sequence[GpuSample], pids: Collection[int]) -> tuple[Claim, ...]:
    """Return the memory of the processes with NVML's PIDs `pids`."""
    held = ((gpu, [each for each in gpu.processes or () if each.pid in pids]) for gpu in gpus)
    found = [Claim(gpu=gpu, held=tuple(processes)) for gpu, processes in held if processes]
    sliced = {claim.gpu.mig_parent_uuid for claim in found}
    return tuple(claim for claim in found if claim.gpu.uuid not in sliced)


def judge(wanted: Sequence[Claim], gpus: Sequence[GpuSample] | None, text: str = "") -> Release:
    """Compare the claims with a sample. If `gpus` is None, `text` is the reason."""
    now = {gpu.uuid: gpu for gpu in gpus or ()}
    why = text or "the GPU is not listed any more"
    return Release(gpus=tuple(_judged(claim, now.get(claim.gpu.uuid), why) for claim in wanted))


async def wait(
    read: Callable[[], Awaitable[GpuReading]],
    wanted: Sequence[Claim],
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
    interval_seconds: float = INTERVAL_SECONDS,
) -> Release:
    """Sample until all is released or the deadline passes."""
    began_s = time.monotonic()
    while True:
        reading = await read()
        found = judge(wanted, reading.known_gpus, reading.text)
        waited_s = time.monotonic() - began_s
        if found.released or waited_s + interval_seconds > deadline_seconds:
            return replace(found, waited_seconds=waited_s)
        await asyncio.sleep(interval_seconds)


def _judged(claim: Claim, gpu: GpuSample | None, why_not: str) -> Claim:
    known = None if gpu is None or gpu.lost or gpu.processes is None else gpu
    released: bool | None = None
    still: tuple[str, ...] = ()
    if known is None:
        lost = gpu is not None and gpu.lost
        still = ("it fell off the bus" if lost else why_not,)
    elif listed := [each for each in known.processes or () if _is_claimed(each, claim)]:
        released, still = False, tuple(_why(each) for each in listed)
    else:
        before, now = _unexplained(claim.gpu), _unexplained(known)
        left = 0 if before is None or now is None else now - before
        released = left <= LEFT_BYTES_MAX
        if not released:
            still = (f"{size(left)} that no process holds: a driver context outlived them",)
    after_bytes = known.memory_used_bytes if known else None
    return replace(claim, after_bytes=after_bytes, released=released, still=still)


def _unexplained(gpu: GpuSample) -> int | None:
    """Return the bytes that no listed process uses, or None if unknown."""
    held: dict[int, int] = {}
    for process in gpu.processes or ():
        if process.used_bytes is None:
            return None
        held[process.pid] = max(held.get(process.pid, 0), process.used_bytes)
    if gpu.memory_used_bytes is None or gpu.processes is None:
        return None
    return gpu.memory_used_bytes - sum(held.values())


def _is_claimed(process: ProcessSample, claim: Claim) -> bool:
    if process.used_bytes == 0:
        return False  # it is listed, but holds no memory
    return any(each.pid == process.pid and track.is_same(each, process) for each in claim.held)


def _why(process: ProcessSample) -> str:
    who = f"process {process.pid} still holds {size(process.used_bytes)}"
    if not process.state:
        return f"{who}; its state cannot be read"
    why = {
        "D": "it is stuck in the kernel (state D), where signals do not reach it",
        "Z": f"it has ended and its parent, process {process.ppid}, has not reaped it",
        "X": "it is gone, but the driver still charges it (a context outlived it)",
    }
    return f"{who}: {why.get(process.state, f'it is alive (state {process.state})')}"
