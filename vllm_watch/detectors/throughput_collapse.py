"""Detects an engine that is far slower than after its start, at equal load.

Source: vLLM #42484, #16985 (slow until restarted), #45387 (pages held).
"""

from collections.abc import Sequence
from math import exp

from pydantic import BaseModel, ConfigDict

from vllm_watch.detectors import collapse_causes
from vllm_watch.detectors.base import Verdict, View
from vllm_watch.detectors.collapse_engine import KIND, EngineJudge
from vllm_watch.detectors.collapse_equal_work import beside_siblings
from vllm_watch.detectors.collapse_former import FormerLives
from vllm_watch.detectors.collapse_siblings import Siblings
from vllm_watch.detectors.collapse_spec import Acceptances
from vllm_watch.detectors.per_engine import PerEngine

NEEDS = collapse_causes.NEEDS


class Settings(BaseModel):
    """Has no fields. Thresholds are learnt, or explained in signals/baseline.py."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Detector(PerEngine[EngineJudge]):
    """Compares each engine with its past, its siblings and its predecessor."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(KIND, EngineJudge)
        self._siblings, self._former = Siblings(), FormerLives()
        self._acceptance = Acceptances()

    def update(self, view: View) -> Sequence[Verdict]:
        verdicts = self._acceptance.told(view, super().update(view))
        if not view.signals.up:
            return verdicts
        baselines = {name: judge.baseline for name, judge in self.judges.items()}
        self._siblings.look(baselines)
        self._former.look(view.at_s, baselines, view.signals.version)
        ratios = {name: exp(one.quiet_ratio) for name, one in self.judges.items() if one.compared}
        waiting = {name for name, one in self.judges.items() if one.harm.waits}
        beside = (
            self._siblings.judge(each, ratios, waits=each.engine in waiting) for each in verdicts
        )
        works = {name: one.own_work for name, one in self.judges.items()}
        alike = (beside_siblings(each, works, self._siblings.of(each.engine)) for each in beside)
        return [self._former.judge(verdict, view.at_s) for verdict in alike]

    def throughput_ratio(self, engine: str) -> float | None:
        comparison = self.judges[engine].baseline.comparison if engine in self.judges else None
        return comparison.throughput_ratio if comparison else None
