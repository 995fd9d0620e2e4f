"""The input of the rules, one holder at one poll."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_watch.samples.process import ProcessSample
from vllm_watch.signals.holders.records import Limits
from vllm_watch.signals.holders.track import Track


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One holder of GPU memory, with its history."""

    t: float
    at_s: float
    track: Track
    role: str | None
    others: Sequence[ProcessSample]  # vLLM processes on the host's GPUs
    served: bool | None  # a vLLM of this host answers
    placed: bool  # every answering vLLM has a known engine on the host's GPUs
    limits: Limits
    borrowed_here: bool = False  # an engine on this GPU maps another process's memory

    @property
    def process(self) -> ProcessSample:
        return self.track.process
