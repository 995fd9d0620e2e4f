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
    """100 GiB are freed within seconds; slow drivers need more."""

    stuck_seconds: float = 120.0
    """Unbroken D; slow disks take less."""

    orphan_seconds: float = 60.0
    """A worker ends within 40 s of its parent."""

    notebook_seconds: float = 1800.0
    """Reading or thinking takes people less."""

    process_seconds: float = 3600.0
    """Training waits for data or a disk, not an hour."""

    stopped_seconds: float = 600.0
    """Ctrl-Z or a signal; debugging is done."""

    unaccounted_seconds: float = 120.0
    """At a process's end or start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """They hold since `since_s` on the timeline."""

    verdict: str
    reason: str | None = None  # slug
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process on one GPU."""

    process: ProcessSample
    judged: Judged
    role: str | None = None  # signals.holders.roles
    age_seconds: float | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolders:
    """One GPU or MIG slice; largest first, unknown last."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None  # None: not reported
    unaccounted_bytes: int | None  # None: unknown
    unaccounted: Judged  # STALE, ACTIVE (ordinary) or UNKNOWN
    targets: tuple[str, ...] = ()  # now or last

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
        return bool(self.stale) or self.unaccounted.verdict == STALE
