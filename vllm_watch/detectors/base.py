"""The contract of every detector: it is shown each look at a target, and says what it finds.

A detector is a module of this folder with a `Settings` (frozen pydantic, good defaults, each threshold
with its reason) and a `Detector(settings)`. It may keep bounded memory of one target; it is told when
time was lost (`View.known`), and must then not judge across the gap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from vllm_watch.samples.observation import Observation
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.records import TargetSignals
from vllm_watch.signals.window import Window

FIRING, CLEAR, UNKNOWN = "firing", "clear", "unknown"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number that speaks for or against a verdict, in words that a tired person understands."""

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
    severity: str = "ticket"  # "page" | "ticket" | "info"
    restart_advised: bool = False
    summary: str = ""  # one sentence with the numbers that matter
    evidence_for: tuple[Evidence, ...] = ()
    evidence_against: tuple[Evidence, ...] = ()


class Detector(Protocol):
    """Judges one phenomenon on one target."""

    def update(self, view: View) -> Sequence[Verdict]:
        """Return one verdict for each engine (or one for the server), at every look."""


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
