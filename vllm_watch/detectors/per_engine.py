"""What detectors share that judge each engine of a server alone: one judge for each, which comes and goes with it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from vllm_watch.detectors.base import UNKNOWN, Verdict, View
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.gpu import GpuSample


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLook:
    """One look at one engine."""

    at_s: float
    known: bool  # False: time was lost since the last reading; begin anew
    sample: EngineSample
    gpus: Sequence[GpuSample] | None  # the server's, as far as they are seen
    engines: int  # of the server that answered


class Judge(Protocol):
    """Follows one engine."""

    def update(self, look: EngineLook) -> Verdict:
        """Take a look in; return what is to be said now."""


J = TypeVar("J", bound=Judge)


class PerEngine(Generic[J]):
    """One judge per engine; `update` fulfils `detectors.base.Detector`."""

    def __init__(self, kind: str, make: Callable[[str], J]) -> None:
        """`make` gives the judge of an engine that is seen for the first time."""
        self._kind = kind
        self._make = make
        self._judges: dict[str, J] = {}
        self._known = True  # False: since the last reading, time was lost

    @property
    def judges(self) -> Mapping[str, J]:
        """By engine."""
        return self._judges

    def update(self, view: View) -> Sequence[Verdict]:
        """Let every engine's judge have its look; without a reading nothing is known of any."""
        reading = view.observation.reading
        self._known = self._known and view.known
        if reading is None:
            return [
                Verdict(state=UNKNOWN, kind=self._kind, engine=engine) for engine in self._judges
            ]
        for gone in self._judges.keys() - {sample.engine for sample in reading.engines}:
            del self._judges[gone]
        known, self._known = self._known, True
        verdicts = []
        for sample in reading.engines:
            judge = self._judges.get(sample.engine)
            if judge is None:
                judge = self._judges[sample.engine] = self._make(sample.engine)
            look = EngineLook(
                at_s=view.at_s,
                known=known,
                sample=sample,
                gpus=view.observation.gpus,
                engines=len(reading.engines),
            )
            verdicts.append(judge.update(look))
        return verdicts
