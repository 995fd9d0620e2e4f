"""Counters and histograms of one simulated engine, and of its server's HTTP requests."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import floor

from vllm_watch.lab.release import INF, Release
from vllm_watch.lab.workload import Request
from vllm_watch.samples.engine import Histogram, Labelled


class Buckets:
    """The counts per bucket. They are cumulated only when read."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` ascend and end with +Inf."""
        self.bounds = bounds
        self.counts = [0.0] * len(bounds)
        self.sum = 0.0
        self._snapshot: Histogram | None = None

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self._snapshot = None

    def observe_all(self, values: Iterable[float]) -> None:
        bounds, counts, total = self.bounds, self.counts, 0.0
        for value in values:
            counts[bisect_left(bounds, value)] += 1.0
            total += value
        self.sum += total
        self._snapshot = None

    def observe_ramp(self, first: float, slope: float, steps: int, times: int) -> None:
        """Observe `steps` values, each `times` times. The first is `first`, and each later one is larger by `slope`."""
        bounds, counts = self.bounds, self.counts
        last = first + slope * (steps - 1)
        low = bisect_left(bounds, first)
        if last <= bounds[low]:
            counts[low] += steps * times
        else:
            done = 0
            for index in range(low, bisect_left(bounds, last)):
                under = min(steps, floor((bounds[index] - first) / slope) + 1)
                counts[index] += (under - done) * times
                done = under
            counts[bisect_left(bounds, last)] += (steps - done) * times
        self.sum += (first + last) * 0.5 * steps * times
        self._snapshot = None

    def snapshot(self) -> Histogram:
        if self._snapshot is None:
            cumulative = tuple(accumulate(self.counts))
            self._snapshot = Histogram(cumulative[-1], self.sum, self.bounds, cumulative)
        return self._snapshot


_HANDLER_BOUNDS = (0.1, 0.5, 1.0, INF)
_ALL_BOUNDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5,
    10.0, 30.0, 60.0, INF,
)  # fmt: skip


class HttpLog:
    """Series appear with their first request. `*_created` are Unix times."""

    def __init__(self) -> None:
        # Handler, method, "2xx" → count, created.
        self.requests: dict[tuple[str, str, str], list[float]] = {}
        self.sizes: dict[str, list[float]] = {}  # handler → count, bytes in, bytes out, created
        # Handler, method → durations, created.
        self.durations: dict[tuple[str, str], tuple[Buckets, float]] = {}
        self.all_durations = Buckets(_ALL_BOUNDS)

    def record(
        self,
        handler: str,
        status: str,
        seconds: float,
        unix_t: float,
        *,
        method: str = "POST",
        request_bytes: int = 0,
        response_bytes: int = 0,
    ) -> None:
        self.requests.setdefault((handler, method, status), [0.0, unix_t])[0] += 1.0
        size = self.sizes.setdefault(handler, [0.0, 0.0, 0.0, unix_t])
        size[0] += 1.0
        size[1] += request_bytes
        size[2] += response_bytes
        new = Buckets(_HANDLER_BOUNDS), unix_t
        self.durations.setdefault((handler, method), new)[0].observe(seconds)
        self.all_durations.observe(seconds)

    def fields(self) -> Mapping[str, Labelled] | None:
        if not self.requests:
            return None
        by_status: dict[str, float] = {}
        for (_, _, status), (requests, _) in self.requests.items():
            by_status[status] = by_status.get(status, 0.0) + requests
        durations = [buckets.snapshot() for buckets, _ in self.durations.values()]
        every = self.all_durations.snapshot()
        count = sum(size[0] for size in self.sizes.values())
        return {
            "requests": by_status,
            "request_duration_seconds": {
                "count": sum(h.count for h in durations),
                "sum": sum(h.sum or 0.0 for h in durations),
            },
            "request_duration_highr_seconds": {"count": every.count, "sum": every.sum or 0.0},
            "request_size_bytes": {"count": count, "sum": sum(s[1] for s in self.sizes.values())},
            "response_size_bytes": {"count": count, "sum": sum(s[2] for s in self.sizes.values())},
        }


_FLUSH_REQUESTS = 1000  # limits the buffer if nothing scrapes


class Ledger:
    """All counts since the start. Finished requests are added at the next read."""

    def __init__(self, release: Release) -> None:
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.prompt_tokens_external = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.external_queries = 0
        self.external_hits = 0
        self.drafts = 0
        self.success: dict[str, float] = dict.fromkeys(release.finished_reasons, 0.0)
        self._histograms = {field: Buckets(each) for field, each in release.bounds.items()}
        self.inter_token_latency = self._histograms["inter_token_latency"]
        self.iteration_tokens = self._histograms["iteration_tokens"]
        self.ttft = self._histograms["ttft"]
        self._finished: list[Request] = []

    def decode_steps(
        self, requests: int, step_tokens: int, steps: int, seconds: float, slope_seconds: float
    ) -> None:
        """Count steps. The first took `seconds`, and each later step took `slope_seconds` more than the step before.

        The caller adds the tokens to `iteration_tokens`.
        """
        self.generation_tokens += requests * step_tokens * steps
        self.inter_token_latency.observe_ramp(seconds, slope_seconds, steps, requests)
        if step_tokens > 1:
            self.drafts += requests * steps

    def take_back(self, tokens: int) -> None:
        self.generation_tokens -= tokens
        self.iteration_tokens.sum -= tokens

    def admitted(self, request: Request) -> None:
        self.prefix_queries += request.prompt_tokens
        self.prefix_hits += request.started_cached_tokens
        if request.external_tokens:
            self.external_queries += request.prompt_tokens - request.started_cached_tokens
            self.external_hits += request.external_tokens

    def prompt_done(self, request: Request, now: float) -> int:
        """Count a computed prompt, and return the new tokens. A recomputed prompt does not count."""
        tokens = 0
        if request.first_token_t < 0.0:
            request.first_token_t = now
            tokens = request.prompt_tokens
            self.prompt_tokens += tokens
            self.prompt_tokens_cached += request.started_cached_tokens
            self.prompt_tokens_external += request.external_tokens
            self.ttft.observe(now - request.arrival_t)
        else:
            self.inter_token_latency.observe(now - request.last_token_t)
        request.last_token_t = now
        if request.output_tokens:
            request.generated_tokens += 1
            self.generation_tokens += 1
            tokens += 1
        return tokens

    def finish(self, request: Request) -> None:
        reason = request.finish_reason
        self.success[reason] = self.success.get(reason, 0.0) + 1.0
        self._finished.append(request)
        if len(self._finished) >= _FLUSH_REQUESTS:
            self._flush()

    def histograms(self) -> dict[str, Histogram]:
        self._flush()
        return {field: buckets.snapshot() for field, buckets in self._histograms.items()}

    def _flush(self) -> None:
        done, into = self._finished, self._histograms
        if not done:
            return
        self._finished = []
        for field, values in _per_request(done).items():
            if field in into:
                into[field].observe_all(values)


def _per_request(done: list[Request]) -> dict[str, list[float]]:
    started = [r for r in done if r.first_token_t >= 0.0]
    decode = [r.last_token_t - r.first_token_t for r in started]
    outputs: list[float] = [r.generated_tokens for r in done]
    return {
        "request_prompt_tokens": [r.prompt_tokens for r in done],
        "request_generation_tokens": outputs,
        "request_max_num_generation_tokens": outputs,
        "request_params_n": [1] * len(done),
        "request_params_max_tokens": [r.max_tokens for r in done],
        "request_num_preemptions": [r.preemptions for r in done],
        "request_prefill_kv_computed_tokens": [
            r.prompt_tokens - r.started_cached_tokens - r.external_tokens for r in done
        ],
        "e2e_latency": [r.finish_t - r.arrival_t for r in done],
        "queue_time": [r.scheduled_t - r.queued_t for r in started],
        "inference_time": [r.last_token_t - r.scheduled_t for r in started],
        "prefill_time": [r.first_token_t - r.scheduled_t for r in started],
        "decode_time": decode,
        "request_mean_tpot": [
            seconds / (r.generated_tokens - 1) if r.generated_tokens > 1 else 0.0
            for r, seconds in zip(started, decode, strict=True)
        ],
    }
