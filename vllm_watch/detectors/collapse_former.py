"""Slow from the first minutes of a new process: beside what the process before it did at equal load.

A new process has no fresh self yet. With the same model and configuration in the same place it is as fast as the one
before. What differs unseen (another GPU, a flag that /metrics does not tell) is told, too, so this is a ticket, a page
only where no such thing explains it, and never a reason for another restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log

from vllm_watch.detectors.base import FIRING, Evidence, Verdict
from vllm_watch.signals.baseline import Baseline
from vllm_watch.signals.former import Models

SLOW_LOG_RATIO = log(2.2)
"""Steps must take so much longer: while it warms up (caches are cold, kernels are chosen) a healthy process takes up to
twice as long for minutes."""

SLOW_SECONDS = 15.0
"""... in blocks that add up to so many seconds of work, without one between that is normal."""

DEVIATIONS = 2.0
"""... and beyond so many deviations of what the process before knew of this load."""

NORMAL_LOG_RATIO = log(1.25)
"""A block below is normal."""

WARM_SECONDS = 20.0
"""The first seconds of work are left out: the first request of each shape compiles or loads something."""

PAGE_LOG_RATIO = log(3.0)
"""Steps that take so much longer are no other GPU of the same fleet, nor a flag: users feel it, ..."""

PAGE_SECONDS = 180.0
"""... and no warm-up, when blocks that add up to so many seconds of work are all like that."""

FORMER_SECONDS = 3600.0
"""After so long the process is compared with itself alone."""


@dataclass
class _Life:
    """One process beside the one before it."""

    former: Models
    process: int
    began_s: float
    at_s: float = 0.0  # of the last block
    worked_s: float = 0.0
    slow_s: float = 0.0
    page_s: float = 0.0  # of work since the last block that was below PAGE_LOG_RATIO
    since_s: float | None = None  # when the slow blocks began
    log_ratio: float = 0.0  # of the last block
    normal_blocks: int = 0


class FormerLives:
    """Follows the engines of one server."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def look(self, at_s: float, baselines: Mapping[str, Baseline]) -> None:
        """Take the blocks in that this look has completed."""
        for engine, baseline in baselines.items():
            life = self._lives.get(engine)
            former = baseline.former
            if not former.models:
                self._lives.pop(engine, None)
            elif life is None or life.process != former.ended:
                self._lives[engine] = _Life(former.models, former.ended, at_s)
            else:
                _compare(life, baseline)
        for gone in self._lives.keys() - baselines.keys():
            del self._lives[gone]

    def judge(self, verdict: Verdict, at_s: float) -> Verdict:
        """The verdict on one engine with what the process before it did."""
        life = self._lives.get(verdict.engine or "")
        if life is None or verdict.state == FIRING or at_s - life.began_s > FORMER_SECONDS:
            return verdict
        if life.slow_s < SLOW_SECONDS:
            return verdict
        times = exp(life.log_ratio)
        text = f"steps take {times:.1f} times as long as before the restart, at equal load"
        return replace(
            verdict, state=FIRING, cause="slow_engine",
            severity="page" if life.page_s >= PAGE_SECONDS else "ticket",
            summary=f"Engine {verdict.engine}: {text}",
            evidence_for=(Evidence(name="former_step_time_ratio", value=times, expected=1.0, text=text),),
            evidence_against=(
                Evidence(name="own_past", value=None, text="this process was never seen to be faster"),
            ),
            present=life.normal_blocks == 0,
            since_seconds=max(0.0, at_s - (life.since_s or at_s)), measure=times,
        )  # fmt: skip


def _compare(life: _Life, baseline: Baseline) -> None:
    block = None if baseline.comparison is None else baseline.comparison.block
    if block is None or block.at_s <= life.at_s or block.long_prompts:
        return
    life.at_s = block.at_s
    tokens, usage = block.tokens_per_step, block.kv_usage or 0.0
    if not block.step_seconds or tokens is None:
        return
    life.worked_s += block.seconds
    former = life.former.get(block.apart)
    if former is None or life.worked_s < WARM_SECONDS:
        return
    expected, deviation = former.seconds_of(tokens, usage), former.deviation(tokens, usage)
    if expected is None or not former.knows(tokens, usage):
        return
    ratio = life.log_ratio = log(block.step_seconds / expected)
    doubt = DEVIATIONS * deviation
    life.page_s = life.page_s + block.seconds if ratio > max(PAGE_LOG_RATIO, doubt) else 0.0
    if ratio > max(SLOW_LOG_RATIO, doubt):
        life.since_s = block.at_s - block.seconds if life.since_s is None else life.since_s
        life.slow_s, life.normal_blocks = life.slow_s + block.seconds, 0
    elif ratio < NORMAL_LOG_RATIO:
        life.normal_blocks += 1
        if life.normal_blocks > 1 or life.slow_s < SLOW_SECONDS:
            life.slow_s, life.since_s = 0.0, None
