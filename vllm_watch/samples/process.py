"""One process, from /proc and NVML."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """A process that holds GPU memory. `None` is unknown, never zero."""

    pid: int  # as NVML reports it: the host's PID, or our namespace's
    used_bytes: int | None = None  # VRAM; NVML hides it in some containers and under MIG
    type: str | None = None  # "compute" | "graphics" | "mps"
    name: str | None = None  # comm, at most 15 bytes: "VLLM::EngineCor"
    cmdline: tuple[str, ...] | None = None
    ppid: int | None = None
    state: str | None = None  # the letter of /proc/PID/stat
    create_time: float | None = None
    cpu_seconds: float | None = None  # user + system since start
    sm_utilization_ratio: float | None = None  # over the driver's last sampling period
    cgroup: str | None = None
    uid: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    mps: bool | None = None
    pid_local: int | None = None  # in our own namespace, if known
    ancestors: tuple[str, ...] | None = None  # their commands, nearest first; () without a parent
    left_behind: bool | None = None  # the leader of its process group has ended

    @property
    def pid_here(self) -> int:
        return self.pid_local or self.pid
