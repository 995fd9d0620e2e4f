"""Find the GPUs to plan for."""

import asyncio
from pathlib import Path

from vllm_watch.capacity.gpus import cuda_memory_bytes, find_gpu, nearest, sizes_of
from vllm_watch.capacity.plan import Machine
from vllm_watch.capacity.units import GIB
from vllm_watch.errors import WatchError
from vllm_watch.samples.gpu import GpuReading, GpuSample
from vllm_watch.settings.stages import GpuSettings, LogSettings
from vllm_watch.sources.nvml import NvmlSource
from vllm_watch.sources.processes import ProcReader
from vllm_watch.support import logs

_HELP = "name one with --gpu-name, or its size with --gpu-memory-gib"


def find_machine(
    *, name: str | None, memory_gib: float | None, count: int | None, procfs: Path
) -> Machine:
    """Return the named GPUs, or those of this machine. Raises WatchError."""
    if count is not None and count < 1:
        raise WatchError(f"--gpus {count} is not above 0", "give the number of GPUs")
    if name is None and memory_gib is None:
        return _this_machine(count, procfs)
    gpu = find_gpu(name, memory_gib)
    if memory_gib is None and name is not None and len(sizes := sizes_of(name)) > 1:
        told = " or ".join(f"{size:g}" for size in sizes)
        remedy = (
            f"choose one: --gpu-name '{name} {sizes[-1]:g}GB', or --gpu-memory-gib {sizes[-1]:g}"
        )
        raise WatchError(f"--gpu-name '{name}': this card has {told} GiB", remedy)
    if memory_gib is None and gpu is None:
        close = nearest(name or "")
        meant = f"did you mean '{close}'? Else " if close else ""
        remedy = f"{meant}give its memory: --gpu-memory-gib 80"
        raise WatchError(f"--gpu-name '{name}' is not a known GPU", remedy)
    size = memory_gib if memory_gib is not None else gpu.catalogue_gib if gpu else 0.0
    memory, source = cuda_memory_bytes(size, gpu)
    return Machine(memory, source, gpu, name, count)


def _this_machine(count: int | None, procfs: Path) -> Machine:
    reading = asyncio.run(_read(procfs))
    sized = [gpu for gpu in reading.gpus or () if gpu.memory_total_bytes]
    if not sized:
        raise WatchError(
            f"this machine's GPUs cannot be asked: {reading.text or 'there is none'}", _HELP
        )
    least = min(sized, key=_offered)
    source = f"{least.name or 'this GPU'}: {_offered(least) / GIB:.2f} GiB as NVML reports it"
    gpu = find_gpu(least.name, (least.memory_total_bytes or 0) / GIB)
    return Machine(
        _offered(least), source, gpu, least.name, count if count is not None else len(sized)
    )


def _offered(gpu: GpuSample) -> int:
    return (gpu.memory_total_bytes or 0) - (gpu.memory_reserved_bytes or 0)


async def _read(procfs: Path) -> GpuReading:
    logs.configure(LogSettings(level="error"))
    source = NvmlSource(GpuSettings(), ProcReader(procfs))
    try:
        return await source.read()
    finally:
        await source.close()
