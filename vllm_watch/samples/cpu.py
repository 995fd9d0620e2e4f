"""An engine's waits for a CPU of its host, as counted by the kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCpu:
    """One engine's processes at one poll. Counters begin at any value, and restart with the processes or the watcher."""

    engine: str
    waited_seconds: float
    """Per poll the longest wait of a thread, runnable without a CPU; summed."""

    pid: int | None = None  # of the thread that waited longest since the last poll
    name: str | None = None  # title: "VLLM::EngineCore"
    core: str | None = None  # title: "VLLM::EngineCore_DP1 (PID 20)"
    stopped: str | None = None  # by a signal or a debugger; with its PID
    quota_periods: float | None = None  # of the nearest cgroup's CPU limit; None: none
    throttled_periods: float | None = None  # the limit was used up
