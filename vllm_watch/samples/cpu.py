"""The time that an engine waited for a CPU, as counted by the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCpu:
    """`None` is unknown. Counters restart with the engine's processes or the watcher."""

    engine: str
    waited_seconds: float
    """Seconds that a thread was runnable without a CPU. Each poll adds the longest wait of any
    thread."""

    pid: int | None = None  # of the thread with the longest wait since the last poll
    name: str | None = None
    core: str | None = None  # "VLLM::EngineCore_DP1 (PID 20)"
    stopped: str | None = None  # title and PID of a process stopped by a signal or debugger
    quota_periods: float | None = None  # of the nearest cgroup with a CPU limit
    throttled_periods: float | None = None  # periods that reached the limit
