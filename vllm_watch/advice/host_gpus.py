"""Finds free memory and idle GPUs of the engine's host. Requires a complete process list and a single vLLM server."""

from collections.abc import Sequence
from dataclasses import replace

from vllm_watch.advice.records import HostGpus
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.signals.holders import roles

IDLE_RATIO = 0.02
"""On an idle GPU, at most this share of the memory is in use. The driver alone takes a few hundred MiB."""


def host_gpus(gpus: Sequence[GpuSample] | None) -> tuple[HostGpus, frozenset[str]] | None:
    """Return the current state and the UUIDs of idle GPUs, or None if uncertain."""
    if not gpus or any(
        gpu.processes is None or gpu.processes_complete is False or gpu.lost or gpu.mig_parent_uuid
        for gpu in gpus
    ):
        return None
    own, servers = [], set()
    for gpu in gpus:
        engine = [each for each in gpu.processes or () if roles.role(each) in roles.VLLM_ROLES]
        if engine:
            own.append(gpu)
            servers |= {(each.cgroup, each.ppid) for each in engine}
    if len(servers) != 1 or any(_free(gpu) is None for gpu in own):
        return None
    least = min(own, key=lambda gpu: _free(gpu) or 0)
    idle = frozenset(gpu.uuid for gpu in gpus if _is_idle(gpu) and gpu.name == least.name)
    return (
        HostGpus(
            names=tuple(gpu.name for gpu in own),
            total_bytes=(least.memory_total_bytes or 0) - (least.memory_reserved_bytes or 0),
            free_bytes=_free(least) or 0,
            idle=len(idle),
        ),
        idle,
    )


def _free(gpu: GpuSample) -> int | None:
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    return gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0) - gpu.memory_used_bytes


def _is_idle(gpu: GpuSample) -> bool:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    return not gpu.processes and used is not None and bool(total) and used < IDLE_RATIO * (total or 0)  # fmt: skip


class HostGpusSeen:
    """Keeps the minimum free memory and the GPUs that were always idle."""

    def __init__(self) -> None:
        self._worst: HostGpus | None = None
        self._idle: frozenset[str] = frozenset()

    def add(self, gpus: Sequence[GpuSample] | None) -> None:
        found = host_gpus(gpus)
        if found is None:
            return
        now, idle = found
        before = self._worst
        if before is None or before.names != now.names:
            self._worst, self._idle = now, idle
            return
        self._idle &= idle
        self._worst = replace(
            before, free_bytes=min(before.free_bytes, now.free_bytes), idle=len(self._idle)
        )

    @property
    def worst(self) -> HostGpus | None:
        return self._worst
