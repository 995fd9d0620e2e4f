"""Finds a process that is slower than its predecessor from the start, at equal load.

Its GPU or a flag may have changed unnoticed, so no restart is advised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import exp, log

from vllm_watch.detectors.base import FIRING, UNKNOWN, Evidence, Verdict
from vllm_watch.detectors.consequences import FORMER, PAGE, Shift, explained, fulfilled, rule
from vllm_watch.signals.baseline import Baseline, Models

SLOW_LOG_RATIO = log(2.2)
"""A block is slow if its step time exceeds the predecessor's by this log ratio. A healthy process
that warms up may be twice as slow for minutes."""

SLOW_SECONDS = 15.0
"""A finding needs this many seconds of slow blocks."""

DEVIATIONS = 2.0
"""The log ratio must also exceed this many standard deviations of the predecessor's log step
time."""

NORMAL_LOG_RATIO = log(1.25)
"""A block below this log ratio is normal. Two normal blocks without a slow one between them end a
finding."""

WARM_SECONDS = 20.0
"""A process is judged after this many seconds of work. The first requests compile kernels."""

FORMER_SECONDS = 3600.0
"""A finding begins at most this many seconds after the process started. The mix of requests changes
with the time of day."""

UNSEEN_SECONDS = 60.0
"""A finding becomes unknown after this many seconds without a comparable block."""

_PAGE = rule(PAGE, FORMER)


@dataclass
class _Life:
    former: Models
    process: int
    began_s: float
    versions: tuple[str | None, str | None]  # of vLLM, before and now
    at_s: float = 0.0
    compared_s: float = 0.0
    worked_s: float = 0.0
    slow_s: float = 0.0
    page_s: float = 0.0
    since_s: float | None = None
    log_ratio: float = 0.0
    normal_blocks: int = 0

    @property
    def found(self) -> bool:
        return self.slow_s >= SLOW_SECONDS

    @property
    def released(self) -> bool:
        return None not in self.versions and self.versions[0] != self.versions[1]


class FormerLives:
    """Follows the engines of one server."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}

    def look(self, at_s: float, baselines: Mapping[str, Baseline], version: str | None) -> None:
        for engine, baseline in baselines.items():
            life, former = self._lives.get(engine), baseline.former
            former.version_now = version or former.version_now
            if life is None or life.process != former.ended:
                versions = former.version, former.version_now
                self._lives[engine] = _Life(former.models, former.ended, at_s, versions)
            elif former.models:
                _compare(life, baseline, late=at_s - life.began_s > FORMER_SECONDS)
                former.surpassed = life.found
        for gone in self._lives.keys() - baselines.keys():
            del self._lives[gone]

    def judge(self, verdict: Verdict, at_s: float) -> Verdict:
        life = self._lives.get(verdict.engine or "")
        if life is None or verdict.state == FIRING or not life.found:
            return verdict
        if at_s - life.compared_s > UNSEEN_SECONDS:
            return replace(verdict, state=UNKNOWN)
        times = exp(life.log_ratio)
        shift = Shift(FORMER, life.log_ratio, life.page_s, harmed=True)
        reached = fulfilled(shift)
        since = "as before the restart"
        if life.released:
            since = f"since vLLM {life.versions[0]} was replaced by {life.versions[1]}"
        text = f"steps take {times:.1f} times as long {since}, at equal load"
        return replace(
            verdict, state=FIRING, cause="slow_release" if life.released else "slow_engine",
            severity="page" if reached else "ticket",
            summary=f"Engine {verdict.engine}: {text}",
            evidence_for=(Evidence(name="former_step_time_ratio", value=times, expected=1.0, text=text), *explained(shift, reached)),
            evidence_against=(
                Evidence(name="own_past", value=None, text="this process was never seen to be faster"),
            ),
            present=life.normal_blocks == 0,
            since_seconds=max(0.0, at_s - (life.since_s or at_s)), measure=times,
        )  # fmt: skip


def _compare(life: _Life, baseline: Baseline, *, late: bool) -> None:
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
    if late and not life.found:
        return
    life.compared_s = block.at_s
    ratio = life.log_ratio = log(block.step_seconds / expected)
    doubt = DEVIATIONS * deviation
    life.page_s = life.page_s + block.seconds if ratio > max(_PAGE.log_ratio, doubt) else 0.0
    if ratio > max(SLOW_LOG_RATIO, doubt):
        life.since_s = block.at_s - block.seconds if life.since_s is None else life.since_s
        life.slow_s, life.normal_blocks = life.slow_s + block.seconds, 0
    elif ratio < NORMAL_LOG_RATIO:
        life.normal_blocks += 1
        if life.normal_blocks > 1 or not life.found:
            life.slow_s, life.since_s = 0.0, None
