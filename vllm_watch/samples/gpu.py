"""One GPU (or MIG slice), from NVML, and the processes that hold its memory, from NVML and /proc."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU in base units. `None` is unknown, never zero."""

    index: int
    uuid: str
    name: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # without the part that the driver reserves
    memory_reserved_bytes: int | None = None
    utilization_ratio: float | None = None  # share of time in which any kernel ran
    temperature_celsius: float | None = None
    fan_ratio: float | None = None  # share of full speed; None without a fan
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_hz: float | None = None
    sm_clock_max_hz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None  # NVML's names, as in "sw_thermal_slowdown"
    xid_errors: tuple[int, ...] | None = None  # Xid codes since the last poll
    ecc_uncorrected: int | None = None  # since the driver was loaded
    remapped_rows_pending: bool | None = None
    remapped_rows_failed: bool | None = None
    mig_parent_uuid: str | None = None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    lost: bool | None = None  # NVML: GPU_IS_LOST; the other fields are unknown
    processes: tuple[ProcessSample, ...] | None = None
    processes_complete: bool | None = None  # False if limited to our PID namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One poll of all GPUs of this host.

    `status` is "ok" (even without a visible GPU), "no_driver", "hung" (the driver did not answer in
    time) or "error" (see `text`).
    """

    status: str
    text: str = ""
    t: float = 0.0  # Unix seconds
    duration_s: float = 0.0
    driver_version: str | None = None
    gpus: tuple[GpuSample, ...] | None = None

    @property
    def known_gpus(self) -> tuple[GpuSample, ...] | None:
        """Return the GPUs: () without a driver, None if unknown."""
        return () if self.status == "no_driver" else self.gpus
