"""What is judged of GPU memory: one verdict per holder, one sum per GPU."""

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
    """How long something must have been seen before it is called stale, in seconds."""

    dead_seconds: float = 30.0
    """A process that has ended gives back 100 GiB within seconds; a driver that is slow needs some more."""

    stuck_seconds: float = 120.0
    """Without a break in uninterruptible sleep (D): a slow disk or a network file system takes less."""

    orphan_seconds: float = 60.0
    """A worker whose parent died ends by itself within 40 s where it can (it finishes its requests)."""

    notebook_seconds: float = 1800.0
    """Half an hour without work: a person who reads, thinks or talks comes back sooner."""

    process_seconds: float = 3600.0
    """Training waits for data, for other ranks or for a checkpoint's disk, but not for an hour."""

    stopped_seconds: float = 600.0
    """Stopped by Ctrl-Z or a signal; somebody who looks at it in a debugger is done or at it again."""

    unaccounted_seconds: float = 120.0
    """Memory of a process that ends is nobody's for some seconds, and that of one that loads for an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict with its reasons. `since_s`: from when on the timeline what it rests on has been so."""

    verdict: str  # VLLM | ACTIVE | STALE | UNKNOWN
    reason: str | None = None  # slug; of a stale one only
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process on one GPU, judged."""

    process: ProcessSample
    judged: Judged
    role: str | None = None  # of signals.holders.roles; None: not recognised
    age_seconds: float | None = None
    place: str | None = None  # container, pod, unit or session, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """One GPU or MIG slice with its holders, the largest first, those of unknown size last."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None  # None: the driver does not say
    unaccounted_bytes: int | None  # used less all holders; None where either is not known
    unaccounted: Judged  # STALE, ACTIVE (nothing beyond the ordinary) or UNKNOWN
    targets: tuple[str, ...] = ()  # that run there or last did, as far as it is known

    @property
    def stale(self) -> tuple[Holder, ...]:
        return tuple(each for each in self.holders or () if each.judged.verdict == STALE)

    @property
    def stale_bytes(self) -> int | None:
        """Of stale processes; None where nothing is known of any."""
        if self.holders is None:
            return None
        return sum(each.process.used_bytes or 0 for each in self.stale)

    @property
    def has_stale(self) -> bool:
        """Is a process, or memory of none, stale?"""
        return bool(self.stale) or self.unaccounted.verdict == STALE
