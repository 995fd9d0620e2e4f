"""Verdicts on GPU memory."""

from dataclasses import dataclass

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.process import ProcessSample

VLLM, ACTIVE, STALE, UNKNOWN = "vllm", "active", "stale", "unknown"

ORPHANED_WORKER = "orphaned_worker"
IDLE_NOTEBOOK = "idle_notebook"
IDLE_PROCESS = "idle_process"
ZOMBIE_CONTEXT = "zombie_context"
CONTAINER_GONE = "container_gone"
UNACCOUNTED = "unaccounted"
SLEEPING_ENGINE = "sleeping_engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds before memory is called stale."""

    dead_seconds: float = 30.0
    """An ended process returns 100 GiB within seconds, with a slow driver later."""

    stuck_seconds: float = 120.0
    """Unbroken uninterruptible sleep (D); slow disks and network file systems take less."""

    orphan_seconds: float = 60.0
    """A worker whose parent died finishes its requests and ends within 40 s if it can."""

    notebook_seconds: float = 1800.0
    """Unused for half an hour: people who read, think or talk return sooner."""

    process_seconds: float = 3600.0
    """Training waits for data, ranks or a checkpoint's disk, but not for an hour."""

    stopped_seconds: float = 600.0
    """Stopped by Ctrl-Z or a signal; debugging is finished or active again."""

    unaccounted_seconds: float = 120.0
    """Memory lacks an owner for seconds at a process's end, for an instant at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with reasons; they hold since `since_s` on the timeline."""

    verdict: str  # VLLM | ACTIVE | STALE | UNKNOWN
    reason: str | None = None  # slug, if stale
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One judged process on one GPU."""

    process: ProcessSample
    judged: Judged
    role: str | None = None  # of signals.holders.roles; None: not recognised
    age_seconds: float | None = None
    place: str | None = None  # container, pod, unit or session


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """One GPU or MIG slice; largest holders first, unknown sizes last."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None  # None: not reported by the driver
    unaccounted_bytes: int | None  # used less all holders; None: unknown
    unaccounted: Judged  # STALE, ACTIVE (ordinary) or UNKNOWN
    targets: tuple[str, ...] = ()  # that run there, now or last

    @property
    def stale(self) -> tuple[Holder, ...]:
        return tuple(each for each in self.holders or () if each.judged.verdict == STALE)

    @property
    def stale_bytes(self) -> int | None:
        """None if no process is known."""
        if self.holders is None:
            return None
        return sum(each.process.used_bytes or 0 for each in self.stale)

    @property
    def has_stale(self) -> bool:
        """Return True if a process or unaccounted memory is stale."""
        return bool(self.stale) or self.unaccounted.verdict == STALE
