"""Judges each engine of a server separately."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from vllm_watch.detectors.base import UNKNOWN, Verdict, View
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.gpu import GpuSample
from vllm_watch.samples.observation import EngineCpu, ServerSample
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.life import Life, life_of
from vllm_watch.signals.scales import DAYTIME_SECONDS


@record
class EngineLook:
    """One poll of one engine."""

    at_s: float
    known: bool
    sample: EngineSample
    gpus: Sequence[GpuSample] | None
    engines: int
    paused: bool | None = None
    cpu: EngineCpu | None = None


class Judge(Protocol):
    """Judges one engine. `restore` takes the state of the same process, as plain values."""

    def update(self, look: EngineLook) -> Verdict: ...
    def export_state(self) -> dict[str, Any]: ...
    def restore(self, state: stored.Stored, away_seconds: float) -> None: ...


J = TypeVar("J", bound=Judge)

STATE_VERSION = 2


class PerEngine(Generic[J]):
    """Keeps one judge per engine."""

    def __init__(self, kind: str, make: Callable[[str], J]) -> None:
        self._kind = kind
        self._make = make
        self.judges: dict[str, J] = {}
        self._known = True
        self._seen: dict[str, tuple[EngineSample, ServerSample]] = {}
        self._kept: dict[str, stored.Stored] = {}  # restored state of engines not seen yet
        self._kept_at_s = 0.0

    def export_state(self, at_s: float) -> dict[str, Any]:
        engines = {
            name: {
                "life": life_of(*seen).export_state(),
                "judge": self.judges[name].export_state(),
            }
            for name, seen in self._seen.items()
        }
        since_s = self._kept_at_s if self._kept else at_s
        return {"version": STATE_VERSION, "at_s": since_s, "engines": {**self._kept, **engines}}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        stored.version(state, STATE_VERSION)
        at_s, engines = stored.number(state["at_s"]), stored.mapping(state["engines"])
        for engine in engines.values():
            Life.restore(engine["life"])
            self._make("").restore(engine["judge"], 0.0)
        self._kept, self._kept_at_s = dict(engines), at_s

    def _new_judge(self, view: View, sample: EngineSample, server: ServerSample) -> J:
        judge, state = self._make(sample.engine), self._kept.pop(sample.engine, None)
        if state is None:
            return judge
        away_s = max(0.0, view.at_s - self._kept_at_s)
        life = life_of(sample, server)
        if away_s <= DAYTIME_SECONDS and Life.restore(state["life"]).goes_on_as(life, away_s):
            judge.restore(state["judge"], away_s)
        return judge

    def update(self, view: View) -> Sequence[Verdict]:
        reading = view.observation.reading
        self._known = self._known and view.known
        if reading is None:
            return [Verdict(state=UNKNOWN, kind=self._kind, engine=name) for name in self.judges]
        for gone in self.judges.keys() - {sample.engine for sample in reading.engines}:
            del self.judges[gone]
            del self._seen[gone]
        known, self._known = self._known, True
        cpu = {each.engine: each for each in view.observation.cpu or ()}
        verdicts, gpus = [], view.gpus
        for sample in reading.engines:
            judge = self.judges.get(sample.engine)
            if judge is None:
                judge = self.judges[sample.engine] = self._new_judge(view, sample, reading.server)
            self._seen[sample.engine] = sample, reading.server
            look = EngineLook(
                at_s=view.at_s,
                known=known,
                sample=sample,
                gpus=gpus,
                engines=len(reading.engines),
                paused=reading.server.paused,
                cpu=cpu.get(sample.engine),
            )
            verdicts.append(judge.update(look))
        if reading.engines:
            self._kept.clear()
        return verdicts
