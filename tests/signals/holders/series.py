"""Series of looks at made-up GPUs, and what the judge said of the last."""

from dataclasses import replace

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.signals.holders.judge import HolderJudge

GIB = 2**30
T = 1_770_000_000.0
SERVICE = "/system.slice/vllm.service"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f1c2a9e.slice/cri-containerd-7c1e44aa.scope"
SESSION = "/user.slice/user-1003.slice/session-4.scope"
SERVER = "python3 /usr/local/bin/vllm serve /models/llama"


def core(pid=4711, **fields):
    """A vLLM engine core of a systemd unit, a day old, asleep."""
    return process(pid, "VLLM::EngineCore", **({"ppid": 4700, "cgroup": SERVICE} | fields))


def process(pid, *command, gib=20, **fields):
    """A process that holds memory and does nothing."""
    known = {
        "used_bytes": int(gib * GIB), "type": "compute", "name": command[0][-15:] if command else None,
        "cmdline": command or None, "ppid": 1, "state": "S", "create_time": T - 86400.0,
        "cpu_seconds": 100.0, "sm_utilization_ratio": 0.0, "cgroup": SERVICE, "uid": 1001,
    }  # fmt: skip
    return ProcessSample(pid=pid, **(known | fields))


def kernel(pid=18231, **fields):
    """A notebook's kernel in a user's session."""
    command = ("/opt/conda/bin/python3", "-m", "ipykernel_launcher", "-f", "kernel-1.json")
    return process(pid, *command, **({"cgroup": SESSION, "uid": 1003, "gib": 4} | fields))


def gpu(*processes, index=0, extra_gib=0, **fields):
    """A GPU of 80 GiB that is used by these, and by `extra_gib` that nobody holds."""
    used = sum(p.used_bytes or 0 for p in processes) + int(extra_gib * GIB)
    known = {
        "name": "NVIDIA H100", "memory_total_bytes": 80 * GIB, "memory_used_bytes": used,
        "memory_reserved_bytes": GIB // 2, "utilization_ratio": 0.0,
    }  # fmt: skip
    return GpuSample(
        index=index, uuid=f"GPU-{index}", **(known | fields), processes=tuple(processes)
    )


def works(sample, second, *, cpu=0.0, sm=None):
    """The same process, later: having used so much of a core since, and so much of the GPU now."""
    ratio = sample.sm_utilization_ratio if sm is None else sm
    return replace(
        sample, cpu_seconds=sample.cpu_seconds + cpu * second, sm_utilization_ratio=ratio
    )


def look_on(at, *, seconds, step=5, served=None, judge=None, start=0):
    """Look every `step` seconds at what `at(second)` gives; the last judgement."""
    judge = judge or HolderJudge()
    answering = None if served is None else [frozenset()] * served
    judged = ()
    for second in range(start, start + seconds + 1, step):
        gpus = at(second)
        gpus = gpus if isinstance(gpus, tuple) else (gpus,)
        judged = judge.look(float(second), T + second, gpus, answering=answering)
    return judged


def only(judged):
    """(verdict, reason) of the one holder of the one GPU."""
    (one,) = judged
    (holder,) = one.holders
    return holder.judged.verdict, holder.judged.reason


def verdicts(judged):
    """PID → (verdict, reason) over all GPUs."""
    return {
        holder.process.pid: (holder.judged.verdict, holder.judged.reason)
        for each in judged
        for holder in each.holders or ()
    }
