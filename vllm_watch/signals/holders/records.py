"""Records of verdicts on GPU memory."""

from dataclasses import dataclass

from vllm_watch.samples.gpu import GpuSample, ProcessSample
from vllm_watch.samples.record import record

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
    """Seconds until memory counts as stale. The reasons are in stale_vram.Settings."""

    dead_seconds: float = 30.0
    stuck_seconds: float = 120.0
    orphan_seconds: float = 60.0
    notebook_seconds: float = 1800.0
    process_seconds: float = 3600.0
    stopped_seconds: float = 600.0
    unaccounted_seconds: float = 120.0


@record
class Judged:
    """A verdict with its reasons. `since_s` is the time when the verdict became true."""

    verdict: str  # VLLM | ACTIVE | STALE | UNKNOWN
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    remedy: str | None = None
    since_s: float | None = None


@record
class Holder:
    """One judged process on one GPU."""

    process: ProcessSample
    judged: Judged
    role: str | None = None
    age_seconds: float | None = None
    place: str | None = None


@record
class GpuHolders:
    """One GPU or MIG slice, with its largest holders first."""

    gpu: GpuSample
    holders: tuple[Holder, ...] | None
    unaccounted_bytes: int | None
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
