"""Computes one engine's signals over the window."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf, isinf

from vllm_watch.samples.engine import FAILED, EngineSample
from vllm_watch.samples.observation import EngineCpu, ServerSample
from vllm_watch.settings.stages import SloSettings
from vllm_watch.signals import capacity, state
from vllm_watch.signals.blocks import began_anew
from vllm_watch.signals.cpu_waits import Waits
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.records import EngineSignals, Quantiles
from vllm_watch.signals.scales import MINUTE_SECONDS
from vllm_watch.signals.totals import EngineTotals, Totals
from vllm_watch.signals.window import Growth, Window

_EXPORTED = (0.5, 0.95, 0.99)


def quantile(q: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Return the q-quantile as PromQL's histogram_quantile does, or None without observations. `counts` are cumulative, for ascending `bounds`."""
    total = counts[-1] if counts else 0.0
    return _at(q * total, bounds, counts) if 0 < total < inf else None


def _at(rank: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    index = bisect_left(counts, rank)
    if index == len(counts):  # buckets are NaN
        return None
    bound = bounds[index]
    if isinf(bound):
        return bounds[index - 1] if index else None
    lower, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    if index == 0 and bound <= 0:
        return bound
    inside = counts[index] - below
    return lower + (bound - lower) * ((rank - below) / inside) if inside > 0 else bound


def quantiles(
    bounds: Sequence[float], counts: Sequence[float], mean: float | None = None
) -> Quantiles:
    """Return the exported quantiles. In the lowest bucket, `mean` limits the quantiles (Markov's inequality)."""
    first = bounds[0] if bounds and 0 < bounds[0] < inf else None
    total = counts[-1] if counts else 0.0
    if not 0 < total < inf:
        return Quantiles(None, None, None, first)
    found = [_at(q * total, bounds, counts) for q in _EXPORTED]
    if first is not None and mean is not None and (found[0] is None or found[0] <= first):
        found = [
            value if value is None or value > first else min(value, max(0.0, mean) / (1.0 - q))
            for q, value in zip(_EXPORTED, found, strict=True)
        ]
    return Quantiles(found[0], found[1], found[2], first)


def share_within(limit: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Return the share of observations up to `limit`, or None."""
    total = counts[-1] if counts else 0.0
    if not 0 < total < inf:
        return None
    lower, below = 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if limit <= bound:
            if bound == inf:
                return below / total
            width = bound - lower
            inside = 1.0 if width <= 0 else (limit - lower) / width
            return (below + (count - below) * max(0.0, inside)) / total
        lower, below = bound, count
    return 1.0


FILLING_RATIO_MIN = 0.01
"""The time until the cache is full is estimated only if KV usage grew by at least this. Single requests cause less growth."""


_LATENCIES = ("ttft", "inter_token_latency", "queue_time", "e2e_latency")

_OBJECTIVES = (
    ("time_to_first_token", "time_to_first_token_seconds", "ttft"),
    ("inter_token_latency", "inter_token_latency_seconds", "inter_token_latency"),
    ("e2e_latency", "e2e_latency_seconds", "e2e_latency"),
)


class EngineTracker:
    """Follows one engine from poll to poll."""

    def __init__(self, window_seconds: float, slo: SloSettings, *, totals: bool = True) -> None:
        self.window = Window(window_seconds)
        self._waits = Waits(window_seconds)
        self._totals = Totals() if totals else None
        self._objectives = _objectives(slo)
        self.restarts = 0
        self.progress = Progress()
        self.last_progress_t: float | None = None
        self._last_t = 0.0

    def forget_rates(self) -> None:
        self.window.clear()
        self._waits.clear()
        if self._totals is not None:
            self._totals.forget_last()
        self.progress.forget()

    def update(
        self,
        at_s: float,
        t: float,
        sample: EngineSample,
        server: ServerSample,
        engines: int,
        cpu: EngineCpu | None = None,
    ) -> EngineSignals:
        before = self.window.newest
        another = before is not None and self._is_another_server(before, sample)
        if another:
            self.forget_rates()
            before = None
        self._last_t = t
        restarted = before is not None and _began_anew(before, sample)
        if restarted:
            self.restarts += 1
        created_anew = before is not None and before.created_time not in (None, sample.created_time)
        anew = created_anew and sample.created_time is not None
        self.window.add(at_s, sample, began_anew=anew)
        totals = self._totals_with(sample, began_anew=anew)
        self._waits.add(at_s, cpu)
        asleep = state.is_asleep(sample.engine_sleep_state)
        sleeping = asleep if asleep is not None else server.sleeping
        at_rest = state.on_purpose(sample, server, sleeping=bool(sleeping)) is not None
        progress = self.progress
        progress.look(at_s, sample, server, engines, restarted=restarted, at_rest=at_rest)
        if progress.output:
            self.last_progress_t = t
        word, text = state.of_engine(sample, progress, server, sleeping=bool(sleeping))
        if another:
            text += _ANOTHER
        return self._signals(sample, engines, word, text, sleeping, totals)

    def _totals_with(self, sample: EngineSample, *, began_anew: bool) -> EngineTotals:
        if self._totals is None:
            return EngineTotals()
        if sample.model_name != self._totals.model_name:
            self._totals = Totals(sample.model_name)
        return self._totals.add(sample, began_anew=began_anew)

    def _is_another_server(self, before: EngineSample, sample: EngineSample) -> bool:
        """Return True if another replica answered at this address. Its start time differs, but is before the last poll."""
        pairs = (
            (before.created_time, sample.created_time),
            (before.process_start_time, sample.process_start_time),
        )
        before_t = self._last_t - MINUTE_SECONDS
        return any(
            then is not None and then != now < before_t for then, now in pairs if now is not None
        )

    def _signals(
        self,
        sample: EngineSample,
        engines: int,
        word: str,
        text: str,
        sleeping: bool | None,
        totals: EngineTotals,
    ) -> EngineSignals:
        usage = sample.kv_cache_usage
        size = capacity.kv_cache_tokens(sample.cache_config_info, engines)
        by_reason = self._finished_by_reason()
        finished_rate = _served_rate(by_reason)
        steps = self.window.histogram("iteration_tokens")
        latencies = {name: self.window.histogram(name) for name in _LATENCIES}
        attainment = self._attainment(latencies)
        return EngineSignals(
            engine=sample.engine,
            model_name=sample.model_name or "",
            state=word,
            state_text=text,
            requests_running=sample.requests_running,
            requests_waiting=sample.requests_waiting,
            requests_waiting_by_reason=sample.requests_waiting_by_reason,
            kv_cache_usage_ratio=usage,
            kv_cache_capacity_tokens=size,
            kv_cache_free_tokens=_free(size, usage),
            kv_cache_time_to_full_seconds=self._time_to_full(),
            sleeping=sleeping,
            sleep_level=state.sleep_level(sample.engine_sleep_state, sleeping=bool(sleeping)),
            current_generation_tokens_per_second=self._rate("generation_tokens", latest=True),
            generation_tokens_per_second=self._rate("generation_tokens"),
            prompt_tokens_per_second=self._rate("prompt_tokens"),
            requests_finished_per_second=finished_rate,
            requests_finished_by_reason_per_second=by_reason,
            preemptions_per_second=self._rate("preemptions"),
            steps_per_second=None if steps is None else steps.count / steps.seconds,
            tokens_per_step=_mean(steps),
            step_time_seconds=_step_time(steps, latencies["inter_token_latency"]),
            cpu_wait_ratio=self._waits.ratio(),
            prefix_cache_hit_ratio=self._ratio(
                "prefix_cache_hits", "prefix_cache_queries", sample.prefix_cache_hit_rate
            ),
            spec_acceptance_ratio=self._ratio(
                "spec_num_accepted_tokens",
                "spec_num_draft_tokens",
                sample.spec_draft_acceptance_rate,
            ),
            time_to_first_token_seconds=_quantiles(latencies["ttft"]),
            inter_token_latency_seconds=_quantiles(latencies["inter_token_latency"]),
            queue_time_seconds=_quantiles(latencies["queue_time"]),
            e2e_latency_seconds=_quantiles(latencies["e2e_latency"]),
            slo_attainment_ratio=attainment,
            goodput_requests_per_second=_goodput(finished_rate, attainment, self._objectives),
            last_progress_timestamp_seconds=self.last_progress_t,
            restarts=self.restarts,
            totals=totals,
        )

    def _finished_by_reason(self) -> dict[str, float] | None:
        finished = self.window.finished()
        return None if finished is None else {k: v / finished[1] for k, v in finished[0].items()}

    def _rate(self, name: str, *, latest: bool = False) -> float | None:
        grown = self.window.counter(name, latest=latest)
        return None if grown is None else grown[0] / grown[1]

    def _ratio(self, part: str, whole: str, gauge: float | None) -> float | None:
        """Without counters, return vLLM V0's gauge, which is -1 if the feature is off."""
        a, b = self.window.counter(part), self.window.counter(whole)
        if a is not None and b is not None:
            return a[0] / b[0] if b[0] > 0 else None
        return gauge if gauge is not None and gauge >= 0 else None

    def _time_to_full(self) -> float | None:
        first, last = self.window.first, self.window.last
        if first is None or last is None or first is last:
            return None
        then, now = first.counts.kv_cache_usage, last.counts.kv_cache_usage
        if then is None or now is None or now - then < FILLING_RATIO_MIN:
            return None
        return max(0.0, 1.0 - now) * (last.at_s - first.at_s) / (now - then)

    def _attainment(self, latencies: Mapping[str, Growth | None]) -> dict[str, float]:
        shares = {}
        for name, (limit, histogram) in self._objectives.items():
            grown = latencies[histogram]
            share = share_within(limit, grown.bounds, grown.cumulative) if grown else None
            if share is not None:
                shares[name] = share
        return shares


def _objectives(slo: SloSettings) -> Mapping[str, tuple[float, str]]:
    limits = {name: (getattr(slo, setting), told) for name, setting, told in _OBJECTIVES}
    return {name: (limit, told) for name, (limit, told) in limits.items() if limit is not None}


_ANOTHER = (
    "; another server answers than at the previous scrape, so no rate is known: "
    "give each server behind this address a target of its own"
)


def _began_anew(before: EngineSample, now: EngineSample) -> bool:
    then, born = before.process_start_time, now.process_start_time
    if None in (before.created_time, now.created_time) and born not in (None, then):
        return then is not None
    return began_anew(before, now)


def _free(capacity: float | None, usage_ratio: float | None) -> float | None:
    return None if capacity is None or usage_ratio is None else max(0.0, capacity * (1.0 - usage_ratio))  # fmt: skip


def _mean(grown: Growth | None) -> float | None:
    if grown is None or grown.sum is None or grown.count <= 0:
        return None
    return grown.sum / grown.count


def _step_time(steps: Growth | None, inter_token: Growth | None) -> float | None:
    if steps is None or steps.count <= 0:
        return None
    elapsed = steps.seconds / steps.count
    latency = _mean(inter_token)
    return elapsed if latency is None or latency <= 0 else min(elapsed, latency)


def _quantiles(grown: Growth | None) -> Quantiles:
    if grown is None:
        return Quantiles()
    return quantiles(grown.bounds, grown.cumulative, _mean(grown))


def _served_rate(by_reason: Mapping[str, float] | None) -> float | None:
    if by_reason is None:
        return None
    return sum([rate for reason, rate in by_reason.items() if reason != FAILED])


def _goodput(
    finished: float | None, attainment: Mapping[str, float], objectives: Mapping[str, object]
) -> float | None:
    if finished is None or not objectives or len(attainment) < len(objectives):
        return None
    return finished * min(attainment.values())
