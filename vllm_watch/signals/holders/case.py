"""What the rules see of one holder at one look."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders.records import Limits
from vllm_watch.signals.holders.track import Track


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One holder now, with what is remembered of it."""

    t: float  # Unix seconds
    at_s: float  # on the timeline
    track: Track
    role: str | None
    others: Sequence[ProcessSample]  # the other vLLM processes on this host's GPUs
    served: bool | None  # does a vLLM of this host answer? None: nobody asked
    placed: (
        bool  # has each that does an engine of its own on these GPUs, so that this one is not its?
    )
    limits: Limits
    borrowed_here: bool = False  # does an engine on this GPU map another process's memory?

    @property
    def process(self) -> ProcessSample:
        return self.track.process
