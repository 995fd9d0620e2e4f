"""Defines the contract of detectors.

A module has frozen `Settings`, and a `Detector(settings)` for targets or a `HostDetector(settings)`
for hosts. Detectors use bounded memory. If `View.known` is False, they do not compare the poll with
earlier ones. The runbook is docs/detectors/KIND.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.holders.records import GpuHolders
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.records import TargetSignals
from vllm_watch.signals.scales import FEW
from vllm_watch.signals.window import Window

FIRING, CLEAR, UNKNOWN = "firing", "clear", "unknown"


def usual(recent: Collection[float]) -> float:
    """Return the usual one of these values, or 0 if too few are known."""
    return sorted(recent)[-FEW] if len(recent) >= FEW else 0.0


@record
class Around:
    """Other targets related to this one."""

    missed_by: tuple[str, ...] = ()  # peers that wait for KV from this target, or fail without it
    waited_for: tuple[str, ...] = ()  # members of `missed_by` without another KV source
    peers: tuple[str, ...] = ()  # targets that exchange KV with this one
    ranks: tuple[str, ...] = ()  # targets that run every step together with this one
    stalled_ranks: tuple[str, ...] = ()
    held_up_by: tuple[str, ...] = ()  # failed ranks that stall this target
    others_gpus: frozenset[str] = frozenset()
    core: str | None = None  # process title and PID of the only engine core on this target's GPUs
    left_core: str | None = None  # process title and PID of an earlier server's stale engine core


@record
class View:
    """One poll of a target, with its history."""

    at_s: float  # on the target's monotonic timeline
    known: bool  # False if the time since the last poll is unknown
    observation: Observation
    signals: TargetSignals
    windows: Mapping[str, Window] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    around: Around = Around()

    @property
    def gpus(self) -> tuple[GpuSample, ...] | None:
        gpus, others = self.observation.gpus, self.around.others_gpus
        return gpus and tuple(gpu for gpu in gpus if gpu.uuid not in others)


@record
class HostServer:
    """One vLLM server of a host, at its last scrape."""

    name: str
    up: bool
    gpus: Mapping[str, str]  # UUIDs of its GPUs → process names; empty if unknown
    asleep: bool = False  # no engine has weights or cache on the GPU


@record
class HostView:
    """One poll of a host's GPUs."""

    at_s: float
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
    """One observation for or against a verdict."""

    name: str
    value: float | str | None
    unit: str = ""
    expected: float | str | None = None
    text: str = ""


@record
class Verdict:
    """One detector's judgement of an engine or a server. Incidents neither open nor close while the state is UNKNOWN."""

    state: str  # FIRING | CLEAR | UNKNOWN
    kind: str
    engine: str | None = None
    cause: str = "unknown"  # only from the published list
    family: str = ""  # of an unknown cause (story.base.Cause.family)
    severity: str = "ticket"  # "page" | "ticket" | "info"
    restart_advised: bool = False
    summary: str = ""
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    present: bool = True  # this poll's numbers are abnormal
    since_seconds: float = 0.0
    measure: float | None = None  # greater is worse
    concerns: tuple[str, ...] = ()
    restart_targets: tuple[str, ...] = ()


class Detector(Protocol):
    """Judges one phenomenon on one target."""

    def update(self, view: View) -> Sequence[Verdict]:
        """Return one verdict for each engine, or one for the server."""


class HostDetector(Protocol):
    """Judges one phenomenon on one host."""

    def update(self, view: HostView) -> Verdict:
        """Return the verdict on the host at this poll."""


@runtime_checkable
class Remembers(Protocol):
    """A detector with memory that survives a restart of the watcher."""

    def export_state(self, at_s: float) -> dict[str, Any]:
        """Return plain values."""

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        """Restore the state exported `away_seconds` ago.

        If it is damaged, change nothing and raise one of stored.DAMAGE. vLLM may have restarted
        since then, so a process's state is used only if the first scrape shows the same process.
        """


@runtime_checkable
class Inherits(Protocol):
    """A detector that can adopt learnt values of another server of the same group."""

    def inherit(self, state: stored.Stored) -> None:
        """Adopt learnt values that delay findings."""
