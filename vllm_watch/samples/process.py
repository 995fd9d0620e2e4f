"""One process, as /proc and NVML describe it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """A process that holds GPU memory. `None` is unknown (hidden by a PID namespace, say), never zero."""

    pid: int  # as NVML says it: the host's PID, also inside a container
    used_bytes: int | None = None  # VRAM; NVML hides it in some containers and under MIG
    type: str | None = None  # "compute" | "graphics" | "mps"
    name: str | None = (
        None  # comm: the process title, e.g. "VLLM::EngineCore", at most 15 bytes in the kernel
    )
    cmdline: tuple[str, ...] | None = None
    ppid: int | None = None
    state: str | None = None  # the letter of /proc/PID/stat: R S D Z T t X I
    create_time: float | None = None  # Unix seconds
    cpu_seconds: float | None = None  # user + system since start
    sm_utilization_ratio: float | None = None  # 0 to 1, over the last sampling period of the driver
    cgroup: str | None = None
    uid: int | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    mps: bool | None = None
    pid_local: int | None = (
        None  # the same process's PID in our own namespace, where it could be translated
    )
    ancestors: tuple[str, ...] | None = None  # commands, the parent's first; () for a child of none
    left_behind: bool | None = (
        None  # its process group's leader is gone, its parent of another group
    )

    @property
    def pid_here(self) -> int:
        """Its PID as /proc has it, where that is known: NVML may say the host's where /proc has our own."""
        return self.pid_local or self.pid
