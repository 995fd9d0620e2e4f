"""The contract of every detector: it is shown each look at a target, and says what it finds.

A detector is a module of this folder with a `Settings` (frozen pydantic, good defaults, each threshold
with its reason) and a `Detector(settings)`, which judges one target, or a `HostDetector(settings)`, which judges
the GPUs of one host for all its engines. It may keep bounded memory of what it judges; it is told when time was
lost (`View.known`), and must then not judge across the gap.
"""

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
    """What other targets have to do with this one, by name."""

    missed_by: tuple[str, ...] = ()  # that wait for KV from its likes, or fail for want of it
    waited_for: tuple[str, ...] = ()  # ... and exchange KV with no other
    peers: tuple[str, ...] = ()  # with which it exchanges KV
    ranks: tuple[str, ...] = ()  # that step together with it
    stalled_ranks: tuple[str, ...] = ()  # of those, who has work and does none
    held_up_by: tuple[str, ...] = ()  # of those, who is known to stand still
    others_gpus: frozenset[str] = frozenset()  # UUIDs of its host's, where only other servers run
    core: str | None = None  # the one engine core on its GPUs: title and PID
    left_core: str | None = None  # ... that a server before left behind, by now stale


@record
class View:
    """One look at one target, with all that led up to it."""

    at_s: float  # on the target's timeline, which never steps
    known: bool  # False: how long ago the look before was is not known; begin anew
    observation: Observation
    signals: TargetSignals
    windows: Mapping[str, Window] = field(
        default_factory=dict
    )  # by engine; the newest entry is this look
    progress: Mapping[str, Progress] = field(default_factory=dict)  # by engine, as of this poll
    around: Around = Around()

    @property
    def gpus(self) -> tuple[GpuSample, ...] | None:
        """Of its host, those on which it runs or may run; None: not known."""
        gpus, others = self.observation.gpus, self.around.others_gpus
        return gpus and tuple(gpu for gpu in gpus if gpu.uuid not in others)


@record
class HostServer:
    """One vLLM server of a host, at the last scrape of it."""

    name: str  # of its target
    up: bool  # did it answer?
    gpus: frozenset[str]  # UUIDs, for certain its own; also while it is down; empty: not known
    workers: Mapping[str, str] = field(default_factory=dict)  # UUID → its processes there, in words
    asleep: bool = False  # do all its engines sleep, without weights and cache on the GPU?


@record
class HostView:
    """One look at the GPUs of one host."""

    at_s: float  # on the host's timeline, which never steps
    gpus: tuple[GpuSample, ...]
    holders: tuple[GpuHolders, ...]  # judged, in the same order
    servers: tuple[HostServer, ...] = ()

    def using(self, uuid: str) -> tuple[HostServer, ...]:
        """The servers that are known to run on a GPU."""
        return tuple(each for each in self.servers if uuid in each.gpus)

    def hit(self, uuid: str) -> tuple[HostServer, ...]:
        """The servers that what is wrong with a GPU hits: those that use it, or the only one that there is."""
        alone = self.servers if len(self.servers) == 1 and not self.servers[0].gpus else ()
        return self.using(uuid) or alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number for or against a verdict, in words that a tired person understands."""

    name: str  # slug: "steps_per_second"
    value: float | str | None
    unit: str = ""
    expected: float | str | None = None  # what it would be if all were well
    text: str = ""  # "no step for 42 s; the longest before was 1.3 s"


@record
class Verdict:
    """What one detector says of one engine (or, with `engine` None, of the whole server) at one look.

    `unknown` is never clear: an incident that is open stays open, and none opens.
    """

    state: str  # FIRING | CLEAR | UNKNOWN
    kind: str  # the detector's incident kind, e.g. "engine_stalled"
    engine: str | None = None
    cause: str = "unknown"  # of the published list; "unknown" rather than guessed
    family: str = ""  # family of an unknown cause (story.base.Cause); known causes have their own
    severity: str = "ticket"  # "page" | "ticket" | "info"
    restart_advised: bool = False
    summary: str = ""  # one sentence with the numbers that matter
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()
    present: bool = True  # of a finding: are the numbers of this look outside of normal?
    since_seconds: float = 0.0  # of a finding: for how long the trouble has lasted by this look
    measure: float | None = None  # how bad the first evidence is: of two, the greater is worse
    concerns: tuple[str, ...] = ()  # of a finding on a host: the targets that it hits
    restart_targets: tuple[str, ...] = ()  # ... and those of them that a restart is advised of


class Detector(Protocol):
    """Judges one phenomenon on one target."""

    def update(self, view: View) -> Sequence[Verdict]:
        """Return one verdict for each engine (or one for the server), at every look."""


class HostDetector(Protocol):
    """Judges one phenomenon on one host."""

    def update(self, view: HostView) -> Verdict:
        """Return what it finds at this look."""


@runtime_checkable
class Remembers(Protocol):
    """A detector whose memory outlives the watcher: what it has learnt, and what it was about to say."""

    def export_state(self, at_s: float) -> dict[str, Any]:
        """Return its memory as plain values, as it is at `at_s` on the target's timeline."""

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        """Take the memory of an earlier run on the same timeline, which goes on `away_seconds` after it was kept.

        Whether the same process still answers is not known yet: what belongs to one process must wait
        for the first look at it. Raises one of stored.DAMAGE, and has then changed nothing.
        """


@runtime_checkable
class Inherits(Protocol):
    """A detector that may begin with what another server of the same group has taught."""

    def inherit(self, state: stored.Stored) -> None:
        """Take only what makes it more patient from another server's memory. Raises one of stored.DAMAGE."""
