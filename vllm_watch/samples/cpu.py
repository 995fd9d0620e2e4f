"""An engine's waits for a CPU of its host, as counted by the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCpu:
    """`None` is unknown. Counters restart with the engine's processes or the watcher."""

    engine: str
    waited_seconds: float
    """Each poll adds the longest time that one thread was runnable without a CPU."""

    pid: int | None = None  # of the thread that waited longest since the last poll
    name: str | None = None
    core: str | None = None  # "VLLM::EngineCore_DP1 (PID 20)"
    stopped: str | None = None  # a process that a signal or a debugger stopped, with its PID
    quota_periods: float | None = None  # of the nearest cgroup with a CPU limit, if any
    throttled_periods: float | None = None  # periods in which the limit was used up
