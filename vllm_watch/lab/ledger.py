"""Counters and histograms of one simulated engine."""

from collections.abc import Mapping

from vllm_watch.lab.buckets import Buckets
from vllm_watch.lab.request import Request
from vllm_watch.samples.engine import Histogram

_FLUSH_REQUESTS = 1000  # limits the buffer if nothing scrapes


class Ledger:
    """All counts since the start. Finished requests are added at the next read."""

    __slots__ = (
        "_finished", "_histograms", "drafts", "external_hits", "external_queries",
        "generation_tokens", "inter_token_latency", "iteration_tokens", "preemptions",
        "prefix_hits", "prefix_queries", "prompt_tokens", "prompt_tokens_cached",
        "prompt_tokens_external", "success", "ttft",
    )  # fmt: skip

    def __init__(self, bounds: Mapping[str, tuple[float, ...]], reasons: tuple[str, ...]) -> None:
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
        self.success: dict[str, float] = dict.fromkeys(reasons, 0.0)
        self._histograms = {field: Buckets(bounds[field]) for field in bounds}
        self.inter_token_latency = self._histograms["inter_token_latency"]
        self.iteration_tokens = self._histograms["iteration_tokens"]
        self.ttft = self._histograms["ttft"]
        self._finished: list[Request] = []

    def decode_steps(
        self, requests: int, step_tokens: int, steps: int, seconds: float, slope_seconds: float
    ) -> None:
        """Count steps. The first took `seconds`, and each later step took `slope_seconds` more than the step before."""
        tokens = requests * step_tokens
        self.generation_tokens += tokens * steps
        self.iteration_tokens.observe(tokens, steps)
        self.inter_token_latency.observe_ramp(seconds, slope_seconds, steps, requests)
        if step_tokens > 1:
            self.drafts += requests * steps

    def decode_beside_prefill(self, requests: int, step_tokens: int, seconds: float) -> int:
        """Count one step, and return its tokens. The caller adds them to `iteration_tokens`."""
        tokens = requests * step_tokens
        self.generation_tokens += tokens
        self.inter_token_latency.observe(seconds, requests)
        if step_tokens > 1:
            self.drafts += requests
        return tokens

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
