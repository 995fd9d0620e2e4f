"""Sums up one engine's counters since the first poll, so that `increase()` never exceeds the real count."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import add, attrgetter, itemgetter, lt, sub

from vllm_watch.samples.engine import EngineSample, Histogram
from vllm_watch.samples.record import record

COUNTERS = ("prompt_tokens", "generation_tokens", "preemptions")
BOUNDS: Mapping[str, tuple[float, ...]] = {
    "ttft": (0.01, 0.04, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0),
    "inter_token_latency": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 10.0),
    "e2e_latency": (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0, 1920.0),
}
"""Upper bounds in seconds, a subset of vLLM's. They are equal for all releases, so that engines can
be summed. If an engine lacks a bound, the next lower bound is used."""

Numbers = tuple[float, ...]

_counters_of, _histograms_of = attrgetter(*COUNTERS), attrgetter(*BOUNDS)


@record
class EngineTotals:
    """Totals since the first poll. Values that the engine does not export are None."""

    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    preemptions: float | None = None
    requests_finished: Mapping[str, float] | None = None
    ttft: Numbers | None = None  # count, sum in seconds, observations within each of BOUNDS
    inter_token_latency: Numbers | None = None
    e2e_latency: Numbers | None = None


class Totals:
    """Sums one engine's polls."""

    def __init__(self, model_name: str | None = None) -> None:
        self.model_name = model_name
        self._counted: dict[str, float] = {}
        self._last_counted: dict[str, float] = {}
        self._totals: dict[str, Numbers] = {}
        self._last: dict[str, Numbers] = {}
        self._finished: dict[str, float] = {}
        self._last_finished: Mapping[str, float] | None = None
        self._bounds: dict[str, Numbers] = {}
        # Indexes of our buckets in [0, *the engine's buckets].
        self._picks: dict[str, Callable[[Numbers], Numbers]] = {}

    def forget_last(self) -> None:
        self._last.clear()
        self._last_counted.clear()
        self._last_finished = None

    def add(self, sample: EngineSample, *, began_anew: bool) -> EngineTotals:
        for name, value in zip(COUNTERS, _counters_of(sample), strict=True):
            if value is not None:
                then = self._last_counted.get(name)
                self._last_counted[name] = value
                grown = 0.0 if then is None else _grown(then, value, began_anew)
                self._counted[name] = self._counted.get(name, 0.0) + grown
        for name, histogram in zip(BOUNDS, _histograms_of(sample), strict=True):
            if histogram is not None and histogram.sum is not None:
                if histogram.bounds is not self._bounds.get(name):
                    self._rebound(name, histogram, began_anew)
                told = self._picks[name]((0.0, *histogram.cumulative))
                self._grow(name, (histogram.count, histogram.sum, *told), began_anew)
        if sample.request_success is not None:
            self._finish(sample.request_success, began_anew)
        counted, found = self._counted.get, self._totals.get
        return EngineTotals(
            prompt_tokens=counted("prompt_tokens"),
            generation_tokens=counted("generation_tokens"),
            preemptions=counted("preemptions"),
            requests_finished=self._finished.copy() or None,
            ttft=found("ttft"),
            inter_token_latency=found("inter_token_latency"),
            e2e_latency=found("e2e_latency"),
        )

    def _rebound(self, name: str, histogram: Histogram, began_anew: bool) -> None:
        known, last = self._bounds.get(name), self._last.get(name)
        self._bounds[name] = histogram.bounds
        self._picks[name] = _pick(histogram.bounds, BOUNDS[name])
        if known != histogram.bounds and not began_anew and last and histogram.count >= last[0]:
            del self._last[name]

    def _grow(self, name: str, now: Numbers, began_anew: bool) -> None:
        last = self._last.get(name)
        self._last[name] = now
        total = self._totals.get(name)
        if total is None or last is None:
            self._totals[name] = total or (0.0,) * len(now)
        elif began_anew or now[0] < last[0]:
            self._totals[name] = tuple(map(add, total, now))
        elif now != last:
            grown: Iterable[float] = map(sub, now, last)
            if any(map(lt, now, last)):  # a bucket fell without a reset, so subtract nothing
                grown = [max(0.0, each) for each in grown]
            self._totals[name] = tuple(map(add, total, grown))

    def _finish(self, now: Mapping[str, float], began_anew: bool) -> None:
        last, self._last_finished = self._last_finished, now
        for reason, value in now.items():
            grown = 0.0 if last is None else _grown(last.get(reason, 0.0), value, began_anew)
            self._finished[reason] = self._finished.get(reason, 0.0) + grown


def _grown(then: float, now: float, began_anew: bool) -> float:
    return now if began_anew or now < then else now - then


@lru_cache(maxsize=64)
def _pick(theirs: Numbers, ours: Numbers) -> Callable[[Numbers], Numbers]:
    return itemgetter(*(bisect_right(theirs, bound) for bound in ours))
