"""Verdicts on GPU memory: one per holder, one sum per GPU."""

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
    """An ended process returns 100 GiB within seconds; a slow driver needs more."""

    stuck_seconds: float = 120.0
    """Unbroken uninterruptible sleep (D): a slow disk or network file system takes less."""

    orphan_seconds: float = 60.0
    """A worker whose parent died ends within 40 s if it can (it finishes its requests)."""

    notebook_seconds: float = 1800.0
    """Half an hour without work: people who read, think or talk return sooner."""

    process_seconds: float = 3600.0
    """Training waits for data, ranks or a checkpoint's disk, but not for an hour."""

    stopped_seconds: float = 600.0
    """Stopped by Ctrl-Z or a signal; a debugging session is finished or active again."""

    unaccounted_seconds: float = 120.0
    """Memory of an ending process lacks an owner for seconds, of a loading one for an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with reasons. `since_s`: since when they hold, on the timeline."""

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
    """One GPU or MIG slice with its holders, largest first, unknown sizes last."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None  # None: not reported by the driver
    unaccounted_bytes: int | None  # used less all holders; None if either is unknown
    unaccounted: Judged  # STALE, ACTIVE (within the ordinary) or UNKNOWN
    targets: tuple[str, ...] = ()  # known to run there, now or last

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
