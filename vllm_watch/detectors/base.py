"""The contract of detectors. A module here has `Settings` (frozen pydantic, a reason per threshold) and a `Detector(settings)` for one target or a
`HostDetector(settings)`. Memory is bounded; after a gap (`View.known` is False) nothing is compared with earlier data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.holders.records import GpuHolders
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.records import TargetSignals
from vllm_watch.signals.window import Window

FIRING, CLEAR, UNKNOWN = "firing", "clear", "unknown"


@record
class Around:
    """Related targets, by name."""

    missed_by: tuple[str, ...] = ()  # they wait for its KV, or fail without
    waited_for: tuple[str, ...] = ()  # `missed_by` without another source
    peers: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    stalled_ranks: tuple[str, ...] = ()  # `ranks` with work and no progress
    held_up_by: tuple[str, ...] = ()  # `ranks` that failed themselves
    others_gpus: frozenset[str] = frozenset()  # UUIDs of GPUs that only others use
    core: str | None = None  # the only engine core on its GPUs
    left_core: str | None = None  # an earlier server's stale one


@record
class View:
    """One poll of a target."""

    at_s: float  # on the target's monotonic timeline
    known: bool
    observation: Observation
    signals: TargetSignals
    windows: Mapping[str, Window] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    around: Around = Around()

    @property
    def gpus(self) -> tuple[GpuSample, ...] | None:
        """The host's GPUs it may run on; None: unknown."""
        gpus, others = self.observation.gpus, self.around.others_gpus
        return gpus and tuple(gpu for gpu in gpus if gpu.uuid not in others)


@record
class HostServer:
    """One vLLM server of a host, at its last scrape."""

    name: str
    up: bool
    gpus: frozenset[str]  # also while down; empty: unknown
    workers: Mapping[str, str] = field(default_factory=dict)  # UUID → its processes
    asleep: bool = False  # all engines, without weights or cache on the GPU


@record
class HostView:
    """One poll of a host's GPUs."""

    at_s: float  # on the host's monotonic timeline
    gpus: tuple[GpuSample, ...]
    holders: tuple[GpuHolders, ...]
    servers: tuple[HostServer, ...] = ()

    def using(self, uuid: str) -> tuple[HostServer, ...]:
        return tuple(each for each in self.servers if uuid in each.gpus)

    def hit(self, uuid: str) -> tuple[HostServer, ...]:
        alone = self.servers if len(self.servers) == 1 and not self.servers[0].gpus else ()
        return self.using(uuid) or alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number for or against a verdict."""

    name: str
    value: float | str | None
    unit: str = ""
    expected: float | str | None = None  # healthy
    text: str = ""


@record
class Verdict:
    """One detector's judgement of an engine (None: the server). `unknown` is not clear: an incident stays open, and none opens."""

    state: str  # FIRING | CLEAR | UNKNOWN
    kind: str
    engine: str | None = None
    cause: str = "unknown"  # from the published list; never guessed
    family: str = ""  # story.base.Cause
    severity: str = "ticket"  # "page" | "ticket" | "info"
    restart_advised: bool = False
    summary: str = ""
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    present: bool = True  # this poll's numbers are abnormal
    since_seconds: float = 0.0
    measure: float | None = None  # of the first evidence; greater is worse
    concerns: tuple[str, ...] = ()
    restart_targets: tuple[str, ...] = ()


class Detector(Protocol):
    """Judges one phenomenon on one target."""

    def update(self, view: View) -> Sequence[Verdict]:
        """One verdict per engine, or one for the server."""


class HostDetector(Protocol):
    """Judges one phenomenon on one host."""

    def update(self, view: HostView) -> Verdict:
        """Return the verdict on the host at this poll."""


@runtime_checkable
class Remembers(Protocol):
    """A detector whose memory survives a restart of the watcher."""

    def export_state(self, at_s: float) -> dict[str, Any]:
        """Return plain values."""

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        """Restore the state of `away_seconds` ago on the same timeline; a process's state waits for the first scrape. Raises one of
        stored.DAMAGE, changing nothing."""


@runtime_checkable
class Inherits(Protocol):
    """It can learn from another server of its group."""

    def inherit(self, state: stored.Stored) -> None:
        """Adopt only habits that make it more patient. Raises one of stored.DAMAGE."""
