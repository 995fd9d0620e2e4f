"""Records of verdicts on GPU memory."""

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
    """Time of unbroken uninterruptible sleep (D); slow disks and network file systems take less."""

    orphan_seconds: float = 60.0
    """A worker whose parent died finishes its requests and ends within 40 s if it can."""

    notebook_seconds: float = 1800.0
    """Half an hour without use: people who read, think or talk return sooner."""

    process_seconds: float = 3600.0
    """Training waits for data, ranks or a checkpoint's disk, but not for an hour."""

    stopped_seconds: float = 600.0
    """Time after Ctrl-Z or a signal, by which debugging is finished or active again."""

    unaccounted_seconds: float = 120.0
    """Memory lacks an owner for seconds at a process's end, and for an instant at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with reasons; they hold since `since_s` on the timeline."""

    verdict: str  # VLLM | ACTIVE | STALE | UNKNOWN
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One judged process on one GPU."""

    process: ProcessSample
    judged: Judged
    role: str | None = None  # of signals.holders.roles
    age_seconds: float | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """One GPU or MIG slice; the largest holders come first."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None
    unaccounted_bytes: int | None  # used memory less all holders'
    unaccounted: Judged
    targets: tuple[str, ...] = ()

    @property
    def stale(self) -> tuple[Holder, ...]:
        return tuple(each for each in self.holders or () if each.judged.verdict == STALE)

    @property
    def stale_bytes(self) -> int | None:
        if self.holders is None:
            return None
        return sum(each.process.used_bytes or 0 for each in self.stale)

    @property
    def has_stale(self) -> bool:
        return bool(self.stale) or self.unaccounted.verdict == STALE
