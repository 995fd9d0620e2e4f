"""Compares an engine's current work with its work after the start.

Polls are joined into blocks of 2 to 8 s. The step times of the previous process are kept, too.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.record import record
from vllm_watch.signals import stored
from vllm_watch.signals.blocks import KINDS, Block, Blocks, began_anew, tells_load
from vllm_watch.signals.scales import (
    ALIKE,
    HALF,
    KEPT_MAX,
    MINUTE_SECONDS,
    SMALL_SHARE,
)
from vllm_watch.signals.step_model import StepModel
from vllm_watch.signals.throughput import LEARNT_SECONDS, Throughput

SCORE_OF_ALARM = 8.0
"""This sum of scores gives level 1. If healthy scores are normally distributed with unit variance
and a mean of at most −2, one false alarm occurs in exp(2 · 2 · 8) blocks on average, over 10^13."""

ALARM_SECONDS, BLOCK_SHARE_MAX = 7.0, 0.6
"""An alarm takes this many seconds and two blocks: one block changes the level by at most this share. Long prefills and
host hiccups last a second or two. With 8 s and a half, the recorded slowdowns are found a block later."""

CEILING = 1.5
"""The level is never above this, so that an alarm clears soon after its cause ends."""


class Cusum:
    """A one-sided CUSUM (Page, Biometrika 41, 1954). The level goes from 0 to CEILING. An alarm begins at 1 and ends at CLEAR_AT.

    The score of a block is its distance above the tolerance, in standard deviations. The level is the sum of the scores, divided by
    SCORE_OF_ALARM. A block changes it by at most its own seconds divided by ALARM_SECONDS (during an alarm, down by DRAIN_SECONDS).
    """

    CLEAR_AT = 0.25

    def __init__(self) -> None:
        self.level = 0.0
        self.alarm = False

    def add(self, score: float, seconds: float) -> bool:
        # An alarm takes at least two blocks.
        up = min(seconds / ALARM_SECONDS, BLOCK_SHARE_MAX)
        down = up
        if self.alarm:
            down = min(seconds / DRAIN_SECONDS, BLOCK_SHARE_MAX)
        step = max(-down, min(up, score / SCORE_OF_ALARM))
        self.level = max(0.0, min(CEILING, self.level + step))
        if self.level >= 1.0 - 1e-9:
            self.alarm = True
        elif self.level <= self.CLEAR_AT:
            self.alarm = False
        return self.alarm

    def export_state(self) -> dict[str, Any]:
        return {"level": self.level, "alarm": self.alarm}

    def restore(self, state: stored.Stored, level_max: float = CEILING) -> None:
        level, alarm = stored.number(state["level"], 0.0), stored.flag(state["alarm"])
        self.level, self.alarm = min(level, level_max, CEILING), alarm and level_max >= 1.0

    def silence(self, seconds: float) -> None:
        if not self.alarm:
            self.level *= 0.5 ** (seconds / MINUTE_SECONDS)


_FOUND_OUT = frozenset(("num_gpu_blocks", "num_cpu_blocks"))

Fingerprint = tuple[str | None, Mapping[str, str] | None]

Models = Mapping[frozenset[str], StepModel]


class Former:
    """Keeps a process's step models for successors with the same configuration."""

    def __init__(self) -> None:
        self.models: Models = {}
        self.version: str | None = None
        self.version_now: str | None = None
        self.ended = 0
        self.surpassed = False  # the current process is far slower

    def end(self, models: Models, before: Fingerprint, now: Fingerprint) -> None:
        self.ended += 1
        ready = {each: model for each, model in models.items() if model.ready}
        enough_s = min(LEARNT_SECONDS, _worked_seconds(self.models))
        if ready and _worked_seconds(ready) >= enough_s and not self.surpassed:
            self.models, self.version = ready, self.version_now
        self.surpassed = False
        if not _set_up_alike(before, now):
            self.models = {}

    def export_state(self) -> dict[str, Any]:
        if not self.models:
            return {}
        apart = max(self.models, key=lambda each: self.models[each].blocks)
        model = self.models[apart].export_state()
        return {
            "apart": sorted(apart),
            "model": model,
            "version": self.version,
            "surpassed": self.surpassed,
        }

    def restore(self, state: stored.Stored) -> None:
        if state:
            model, version = StepModel(), stored.text_or_none(state["version"])
            model.restore(state["model"])
            self.surpassed = stored.flag(state["surpassed"])
            self.models, self.version = {frozenset(stored.texts(state["apart"])): model}, version


def differ(now: Sequence[Any], before: Sequence[Any]) -> bool:
    """Return True if a value that was known before has changed."""
    return any(b is not None and a is not b and a != b for a, b in zip(now, before, strict=True))


def _worked_seconds(models: Models) -> float:
    return sum(model.seconds for model in models.values())


def _set_up_alike(before: Fingerprint, now: Fingerprint) -> bool:
    if differ(now[:1], before[:1]) or before[1] is None or now[1] is None:
        return not differ(now[:1], before[:1])
    return all(
        _near(value, now[1][key]) if key in _FOUND_OUT else value == now[1][key]
        for key, value in before[1].items()
        if key in now[1]
    )


def _near(before: str, now: str) -> bool:
    # Different models differ far more.
    try:
        return max(float(before), float(now)) <= ALIKE * min(float(before), float(now))
    except ValueError:
        return before == now


SLOW_TOLERANCE = 0.18
"""This is log(1.2): a step may take 1.2 times its expected time, because request mixes differ."""

SLOW_DEVIATIONS = 2.0
"""In addition, this many standard deviations at the current load are tolerated."""


STARVED_RATIO = 0.85
"""While requests wait, throughput counts as lost if it is below this share of the usual throughput.
At saturation, a real engine's throughput varies by 20 to 30 %."""

STARVED_DEVIATION = 0.08
"""At saturation, the smoothed log(throughput ratio) has this standard deviation."""

STARVED_RUNNING = 0.7
"""At the same KV usage, a starved engine runs fewer than this share of the usual number of requests."""

STARVED_USAGE_MIN = 0.7
"""Requests wait for the cache only if KV usage is at least this. Below this, even a huge request
fits."""

DRAIN_SECONDS = 40.0
"""During an alarm, the level takes at least this long to fall by 1. While KV pages are short,
throughput varies, because requests are admitted in waves."""

DOUBT = 0.3
"""Nothing is learnt while a CUSUM level is at least this."""


DRIFT_BLOCKS = 8.0
"""The log ratio is smoothed over this many blocks."""


@record
class Comparison:
    """One block compared with the baseline. Unknown values are None."""

    block: Block
    known: bool
    slow_log_ratio: float | None  # log(step time ÷ expected): 0 is normal, 0.7 is twice as long
    expected_step_seconds: float | None
    deviation: float | None
    throughput_ratio: float | None
    running_expected: float | None
    familiar: bool
    sure: bool  # slow, and not only for lack of KV pages
    slow: bool
    slow_now: bool
    starved: bool
    starved_now: bool
    starved_seen: bool

    @property
    def unseen(self) -> bool:
        if self.starved:
            return not self.starved_seen
        return self.slow and self.slow_log_ratio is None


class Baseline:
    """Follows one engine."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._last: EngineSample | None = None
        self._fingerprint: Fingerprint = (None, None)
        self.former = Former()
        self.reset()

    def reset(self) -> None:
        self._lacks: frozenset[str] = frozenset()
        self._models = {self._lacks: StepModel()}
        self.throughput = Throughput()
        self.slow, self.starved = Cusum(), Cusum()
        self.comparison: Comparison | None = None
        self.drift = 0.0
        self._excursion: list[float] = []

    @property
    def model(self) -> StepModel:
        return self._models[self._lacks]

    def update(
        self, at_s: float, sample: EngineSample, *, known: bool, engines: int = 1
    ) -> Comparison | None:
        if not tells_load(sample):
            self.comparison = None
        fingerprint = _fingerprint(sample, self._fingerprint)
        restarted = self._last is not None and began_anew(self._last, sample)
        if restarted or differ(fingerprint, self._fingerprint):
            self.former.end(self._models, self._fingerprint, fingerprint)
            self.reset()
            known = False
        self._last, self._fingerprint = sample, fingerprint
        block = self._blocks.add(at_s, sample, anew=not known, engines=engines)
        if block is None:
            return None
        self.comparison = self._compare(block)
        return self.comparison

    def model_of(self, block: Block) -> StepModel | None:
        return self._models.get(block.apart)

    def former_log_ratio(self, block: Block) -> float | None:
        model = self.former.models.get(block.apart)
        if model is None or not block.step_seconds or block.tokens_per_step is None:
            return None
        expected = model.seconds_of(block.tokens_per_step, block.kv_usage or 0.0)
        return None if expected is None else log(block.step_seconds / expected)

    def export_state(self) -> dict[str, Any]:
        lacks = max(self._models, key=lambda each: self._models[each].blocks)
        return {
            "lacks": sorted(lacks),
            "model": self._models[lacks].export_state(),
            "throughput": self.throughput.export_state(),
            "slow": self.slow.export_state(),
            "starved": self.starved.export_state(),
            "drift": self.drift,
            "former": self.former.export_state(),
        }

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        # An incident cannot have ended in so short an absence.
        # After a longer absence, levels stay above DOUBT, so nothing is learnt before new
        # blocks.
        level_max = CEILING if away_seconds <= MINUTE_SECONDS else HALF
        try:
            self._lacks = KINDS.intersection(stored.texts(state["lacks"]))
            self._models = {self._lacks: StepModel()}
            self.model.restore(state["model"])
            self.throughput.restore(state["throughput"], away_seconds)
            self.slow.restore(state["slow"], level_max)
            self.starved.restore(state["starved"], level_max)
            self.drift = stored.number(state["drift"])
            self.former.restore(stored.mapping(state.get("former", {})))
        except stored.DAMAGE:
            self.reset()
            raise

    def _compare(self, block: Block) -> Comparison:
        self.throughput.see(block)
        self._lacks = block.apart
        if self._lacks not in self._models:
            self._models[self._lacks] = StepModel()
        ratio, expected, tolerated, familiar = self._slowness(block)
        ready = self.model.ready
        if ready and ratio is not None and tolerated is not None:
            self._score_slow(ratio, tolerated, block)
        else:
            self.slow.silence(block.seconds)
        running_expected = self.throughput.running_expected(block.kv_usage or 0.0)
        starvation = self._starvation(block, running_expected)
        if starvation is None:
            self.starved.silence(block.seconds)
        elif self.throughput.ready:
            self.starved.add(starvation, block.seconds)
        deviation = None if tolerated is None else (tolerated - SLOW_TOLERANCE) / SLOW_DEVIATIONS
        comparison = Comparison(
            block=block,
            known=ready or self.throughput.ready,
            slow_log_ratio=ratio if ready else None,
            expected_step_seconds=expected if ready else None,
            deviation=deviation,
            throughput_ratio=self._throughput_ratio(block, ratio),
            running_expected=running_expected,
            familiar=familiar,
            sure=ratio is not None and ratio >= SLOW_TOLERANCE and not self._is_crowded(block),
            slow=self.slow.alarm,
            slow_now=ratio is not None and tolerated is not None and ratio > tolerated,
            starved=self.starved.alarm,
            starved_now=starvation is not None and starvation > 0.0,
            starved_seen=starvation is not None,
        )
        self._learn(block, ratio, tolerated)
        return comparison

    def _score_slow(self, ratio: float, tolerated: float, block: Block) -> None:
        deviation = (tolerated - SLOW_TOLERANCE) / SLOW_DEVIATIONS
        score = (ratio - tolerated) / deviation
        hurried = score < 0.0 or block.waiting > 0.0
        # While no request waits, a slow block has half the weight.
        self.slow.add(score, block.seconds * (1.0 if hurried else HALF))
        self.drift += (ratio - self.drift) / DRIFT_BLOCKS
        # A creeping slowdown must not become normal.
        if self.slow.level <= 0.0 and self.drift < SMALL_SHARE:
            self.model.widen(self._excursion)
            self._excursion = []
        elif self.slow.alarm:  # a reported slowdown must not become normal
            self._excursion = []
        elif len(self._excursion) < KEPT_MAX:
            self._excursion.append(ratio)

    def _slowness(self, block: Block) -> tuple[float | None, float | None, float | None, bool]:
        if block.step_seconds is None or block.tokens_per_step is None:
            return None, None, None, False
        load, model = (block.tokens_per_step, block.kv_usage or 0.0), self.model
        crowded, familiar = self.throughput.crowds(block), model.familiar(*load)
        expected = model.seconds_of(*load) if crowded else model.usual_seconds(*load)
        if expected is None:
            return None, None, None, False
        if not (familiar or crowded) and self.slow.level < DOUBT:
            longest = model.met.longest_seconds(*load) or 0.0
            expected = max(expected, min(block.step_seconds, longest))
        tolerated = SLOW_TOLERANCE + SLOW_DEVIATIONS * model.deviation(*load)
        return log(block.step_seconds / expected), expected, tolerated, familiar

    def _starvation(self, block: Block, running_expected: float | None) -> float | None:
        if "requests_waiting" in block.lacks:
            return None
        if block.waiting_min < 1.0 or (block.kv_usage or 0.0) < STARVED_USAGE_MIN:
            return -1e9
        ratio = self.throughput.ratio()
        if (
            not block.steps
            or ratio is None
            or running_expected is None
            or not self._is_crowded(block)
        ):
            return -1e9
        return (log(STARVED_RATIO) - log(max(ratio, 1e-3))) / STARVED_DEVIATION

    def _throughput_ratio(self, block: Block, slow_log_ratio: float | None) -> float | None:
        pace = exp(-slow_log_ratio) if slow_log_ratio is not None and self.model.ready else None
        if block.waiting_min < 1.0 or (block.kv_usage or 0.0) < STARVED_USAGE_MIN:
            return pace
        ratio = self.throughput.ratio()
        return pace if ratio is None else ratio if pace is None else min(ratio, pace)

    def _learn(self, block: Block, ratio: float | None, tolerated: float | None) -> None:
        if max(self.slow.level, self.starved.level) >= DOUBT:
            return
        ready = self.model.ready
        if not ready or not block.waiting_min or ratio is None or ratio < SLOW_TOLERANCE:
            self.throughput.learn(block)
        if block.step_seconds is None or block.tokens_per_step is None or block.recomputed:
            return
        if ready and tolerated is not None:
            unknown = (tolerated - SLOW_TOLERANCE) / SLOW_DEVIATIONS - self.model.scatter
            if self.drift > SMALL_SHARE + SLOW_DEVIATIONS * unknown:
                return
        if ready and self._is_crowded(block):
            return
        self.model.learn(
            block.step_seconds, block.tokens_per_step, block.kv_usage or 0.0, block.seconds
        )

    def _is_crowded(self, block: Block) -> bool:
        if block.waiting <= 0.0 and "requests_waiting" not in block.lacks:
            return False
        expected = self.throughput.running_expected(block.kv_usage or 0.0)
        return expected is not None and block.running < STARVED_RUNNING * expected


def _fingerprint(sample: EngineSample, before: Fingerprint) -> Fingerprint:
    return sample.model_name or before[0], sample.cache_config_info or before[1]
