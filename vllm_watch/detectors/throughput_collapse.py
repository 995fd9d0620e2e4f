"""Detects an engine that is far slower than after its start, at equal load.

Source: vLLM #42484, #16985 (slow until restarted), #45387 (pages held).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vllm_watch.detectors import collapse_causes
from vllm_watch.detectors.base import FIRING, Evidence, Verdict, View
from vllm_watch.detectors.collapse_causes import KIND, PASSES_SECONDS, VAGUE
from vllm_watch.detectors.collapse_engine import EngineJudge
from vllm_watch.detectors.collapse_others import FormerLives, Siblings
from vllm_watch.detectors.per_engine import PerEngine
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals.scales import (
    DAYTIME_SECONDS,
    HALF,
    HOUR_SECONDS,
    PART_SHARE,
)
from vllm_watch.signals.throughput import LEARNT_SECONDS, Mean

NEEDS = collapse_causes.NEEDS


class Settings(Base):
    """Has no fields. Thresholds are learnt, or explained in signals/baseline.py."""


SPEC_ACCEPTANCE = "spec_acceptance"


@dataclass(slots=True)
class Acceptance:
    """Follows one engine's share of accepted drafts."""

    usual: Mean = field(default_factory=lambda: Mean(HOUR_SECONDS))
    last_s: float | None = None
    low_since_s: float | None = None

    def look(self, at_s: float, share: float | None) -> Evidence | None:
        passed_s, self.last_s = at_s - (at_s if self.last_s is None else self.last_s), at_s
        if share is None:
            return None
        # Other mixes of requests lowered the share by at most a third.
        usual = self.usual.value if self.usual.weight >= LEARNT_SECONDS else 0.0
        if not share < HALF * usual >= HALF * PART_SHARE:
            self.low_since_s = None
            if passed_s > 0.0:
                self.usual.add(share, passed_s)
            return None
        if self.low_since_s is None:
            self.low_since_s = at_s
        if at_s - self.low_since_s > DAYTIME_SECONDS:
            self.usual, self.low_since_s = Mean(HOUR_SECONDS), None
            return None
        return Evidence(
            name="spec_acceptance_ratio", value=round(share, 3), unit="ratio", expected=round(usual, 3),
            text=f"{share:.0%} of drafted tokens are accepted, usually {usual:.0%}",
        )  # fmt: skip


class Acceptances:
    """Finds rejected drafts of speculative decoding.

    Steps then take as long as before but yield fewer tokens.
    """

    def __init__(self) -> None:
        self._engines: dict[str, Acceptance] = {}

    def told(self, view: View, verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
        engines = view.signals.engines
        self._engines = {name: self._engines.get(name) or Acceptance() for name in engines}
        fallen = {
            name: each.look(view.at_s, engines[name].spec_acceptance_ratio)
            for name, each in self._engines.items()
        }
        return [self._with(view, verdict, fallen.get(verdict.engine or "")) for verdict in verdicts]

    def _with(self, view: View, verdict: Verdict, fallen: Evidence | None) -> Verdict:
        if fallen is None or (verdict.state == FIRING and verdict.cause not in VAGUE):
            return verdict
        found = verdict.evidence_for if verdict.state == FIRING else ()
        since_s = self._engines[verdict.engine or ""].low_since_s or view.at_s
        if verdict.state != FIRING and view.at_s - since_s < PASSES_SECONDS:
            return verdict
        return replace(
            verdict, state=FIRING, cause=SPEC_ACCEPTANCE, restart_advised=False, present=True,
            severity=verdict.severity if verdict.state == FIRING else "ticket",
            summary=f"Engine {verdict.engine}: {fallen.text}", evidence_for=(fallen, *found),
            since_seconds=view.at_s - since_s,
            measure=self._engines[verdict.engine or ""].usual.value - float(fallen.value or 0.0),
        )  # fmt: skip


class Detector(PerEngine[EngineJudge]):
    """Compares each engine with its past, its siblings and its predecessor."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(KIND, EngineJudge)
        self._acceptances = Acceptances()
        self._siblings, self._former = Siblings(), FormerLives()

    def update(self, view: View) -> Sequence[Verdict]:
        verdicts = self._acceptances.told(view, super().update(view))
        if not view.signals.up:
            return verdicts
        self._siblings.look(self.judges)
        self._former.look(view.at_s, view.signals.version, self.judges)
        beside = [self._siblings.judge(self.judges, verdict) for verdict in verdicts]
        return [self._former.judge(view.at_s, verdict) for verdict in beside]

    def throughput_ratio(self, engine: str) -> float | None:
        comparison = self.judges[engine].baseline.comparison if engine in self.judges else None
        return comparison.throughput_ratio if comparison else None
