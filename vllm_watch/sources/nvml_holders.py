"""Find the processes that hold memory on one GPU or MIG slice.

NVML has a list for each kind of process (compute, graphics, MPS client). Several lists may contain
a process with the same memory, so the lists are merged and not summed.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from vllm_watch.samples.process import ProcessSample
from vllm_watch.sources.gpu_pids import GpuPids
from vllm_watch.sources.nvml_device import Ask, ratio
from vllm_watch.sources.processes import ProcessFacts

# The first list with the process decides its `type`.
LISTS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
)
_NO_INSTANCE = 0xFFFFFFFF
# The driver keeps old samples. The first poll skips samples older than this.
_FIRST_SAMPLE_AGE_MICROSECONDS = 10_000_000


@dataclass(slots=True)
class _Holder:
    pid: int
    gpu_instance: int
    compute_instance: int
    used_bytes: int | None = None
    kinds: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Utilization:
    """Keeps the newest SM utilization sample of each PID since the last poll."""

    last_seen_microseconds: int = 0

    def read(self, ask: Ask, handle: Any) -> dict[int, float | None]:
        now = time.time_ns() // 1000
        if self.last_seen_microseconds > now:
            self.last_seen_microseconds = 0  # the clock was set back
        first = self.last_seen_microseconds == 0
        after = now - _FIRST_SAMPLE_AGE_MICROSECONDS if first else self.last_seen_microseconds
        samples = ask("nvmlDeviceGetProcessUtilization", handle, self.last_seen_microseconds) or ()
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            stamp, pid = int(sample.timeStamp), int(sample.pid)
            if stamp > after and stamp >= newest.get(pid, (0, 0))[0]:
                newest[pid] = (stamp, int(sample.smUtil))
            self.last_seen_microseconds = max(self.last_seen_microseconds, stamp)
        return {pid: ratio(percent) for pid, (_, percent) in newest.items()}


def read_holders(
    ask: Ask,
    handle: Any,
    pids: GpuPids,
    memory_total_bytes: int | None,
    utilization: Utilization | None,
) -> tuple[ProcessSample, ...] | None:
    """Return the holders by ascending PID, or None if NVML supports none of the lists."""
    answers = {kind: ask(function, handle) for kind, function in LISTS}
    if all(answer is None for answer in answers.values()):
        return None
    used_bytes_max = memory_total_bytes if pids.memory_is_theirs else -1
    holders = _merge(answers, used_bytes_max)
    if not holders:
        return ()
    ratios = utilization.read(ask, handle) if utilization and pids.utilization_is_theirs else {}
    mps_known = answers["mps"] is not None
    return tuple(
        _sample(holder, pids.facts(holder.pid), ratios.get(holder.pid), mps_known)
        for holder in holders
    )


def _merge(answers: dict[str, Any], used_bytes_max: int | None) -> list[_Holder]:
    holders: dict[tuple[int, int, int], _Holder] = {}
    for kind, answer in answers.items():
        for info in answer or ():
            key = (int(info.pid), int(info.gpuInstanceId), int(info.computeInstanceId))
            holder = holders.setdefault(key, _Holder(*key))
            holder.kinds.add(kind)
            used = info.usedGpuMemory
            if used is not None and (used_bytes_max is None or used <= used_bytes_max):
                holder.used_bytes = max(used, holder.used_bytes or 0)
    return [holders[key] for key in sorted(holders)]


def _sample(
    holder: _Holder, facts: ProcessFacts | None, sm_ratio: float | None, mps_known: bool
) -> ProcessSample:
    known = facts or ProcessFacts(pid=holder.pid)
    return ProcessSample(
        pid=holder.pid,
        used_bytes=holder.used_bytes,
        type=next(kind for kind, _ in LISTS if kind in holder.kinds),
        name=known.name,
        cmdline=known.cmdline,
        ppid=known.ppid,
        state=known.state,
        create_time=known.create_time,
        cpu_seconds=known.cpu_seconds,
        sm_utilization_ratio=sm_ratio,
        cgroup=known.cgroup,
        uid=known.uid,
        gpu_instance_id=_instance(holder.gpu_instance),
        compute_instance_id=_instance(holder.compute_instance),
        mps="mps" in holder.kinds if mps_known else None,
        pid_local=known.pid_local,
        ancestors=known.ancestors,
        left_behind=known.left_behind,
    )


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
