"""How long an engine had to wait for a CPU of its host, as the kernel counts it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCpu:
    """One engine's processes at one look. `None` is unknown; counts begin at an unknown zero, and anew
    when its processes or the watcher begin anew."""

    engine: str
    waited_seconds: float
    """Of its threads, look by look the one that waited longest: ready to run, and no CPU was given to it."""

    pid: int | None = None  # the process of the thread that waited longest since the look before
    name: str | None = None  # ... and its title: "VLLM::EngineCore"
    core: str | None = None  # its core, with the PID: "VLLM::EngineCore_DP1 (PID 20)"
    stopped: str | None = None  # a process that a signal or a debugger has stopped, with its PID
    quota_periods: float | None = (
        None  # of the nearest cgroup with a CPU limit; None: there is none
    )
    throttled_periods: float | None = None  # those in which the limit was used up before their end
