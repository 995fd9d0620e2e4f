"""One engine's metrics, with the fields of every vLLM release."""

from collections.abc import Mapping

from vllm_watch.samples.record import short_record

Labelled = Mapping[str, float]  # value of one label (finished_reason, source, …) → value


@short_record
class Histogram:
    """A Prometheus histogram, cumulative since the engine's start."""

    count: float
    sum: float | None
    bounds: tuple[float, ...] = ()  # upper bounds in ascending order; the last is +Inf
    cumulative: tuple[float, ...] = ()  # observations up to each bound


@short_record
class EngineSample:
    """Gauges, counters since start and histograms of one engine.

    A field that this engine does not export is None. Metrics without an `engine` label (http, old
    cache_config_info) are repeated on each engine.
    """

    engine: str  # vLLM's `engine` label, "0" if it has none
    model_name: str | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    requests_waiting_by_reason: Labelled | None = None
    requests_swapped: float | None = None
    kv_cache_usage: float | None = None
    cpu_cache_usage: float | None = None
    preemptions: float | None = None
    engine_sleep_state: Labelled | None = None  # awake, weights_offloaded, discard_all → 0 or 1
    prompt_tokens: float | None = None  # grows at the end of a prefill; includes prefix cache hits
    generation_tokens: float | None = None
    total_tokens: float | None = None
    request_success: Labelled | None = None  # includes aborts and errors
    iteration_tokens: Histogram | None = None  # tokens per step; its count is the number of steps
    engine_steps: float | None = None  # steps of the scheduler, over all API servers
    last_engine_iteration: float | None = None  # Unix seconds
    prompt_tokens_by_source: Labelled | None = None
    prompt_tokens_cached: float | None = None
    prompt_tokens_cached_by_source: Labelled | None = None
    prompt_tokens_recomputed: float | None = None
    corrupted_requests: float | None = None
    admission_rejections: Labelled | None = None
    # seconds
    ttft: Histogram | None = None
    inter_token_latency: Histogram | None = None
    request_mean_tpot: Histogram | None = None
    e2e_latency: Histogram | None = None
    queue_time: Histogram | None = None
    prefill_time: Histogram | None = None
    decode_time: Histogram | None = None
    inference_time: Histogram | None = None
    model_forward_time: Histogram | None = None
    model_execute_time: Histogram | None = None
    request_prompt_tokens: Histogram | None = None
    request_generation_tokens: Histogram | None = None
    request_max_num_generation_tokens: Histogram | None = None
    request_params_n: Histogram | None = None
    request_params_best_of: Histogram | None = None
    request_params_max_tokens: Histogram | None = None
    request_num_preemptions: Histogram | None = None
    request_prefill_kv_computed_tokens: Histogram | None = None
    prefix_cache_hit_rate: float | None = None  # -1 if prefix caching is off (V0)
    cpu_prefix_cache_hit_rate: float | None = None
    prefix_cache_queries: float | None = None  # blocks up to vLLM 0.8.5.post1, tokens from 0.9.0
    prefix_cache_hits: float | None = None
    external_prefix_cache_queries: float | None = None
    external_prefix_cache_hits: float | None = None
    mm_cache_queries: float | None = None
    mm_cache_hits: float | None = None
    cache_config_info: Mapping[str, str] | None = None  # as Python prints it: "None", "True"
    kv_block_lifetime_seconds: Histogram | None = None
    kv_block_idle_before_evict_seconds: Histogram | None = None
    kv_block_reuse_gap_seconds: Histogram | None = None
    num_requests_kv_fetch_by_stage: Labelled | None = None
    # vLLM's metric name without the common prefix → value
    kv_failures: Labelled | None = None  # failed or late transfers, stores and loads
    kv_transfers: Labelled | None = None
    operations_in_flight: Labelled | None = None  # running now: sleep, wake, weight updates
    lora_requests_info: Mapping[str, str] | None = None  # labels of the newest series
    spec_num_accepted_tokens: float | None = None
    spec_num_draft_tokens: float | None = None
    spec_num_emitted_tokens: float | None = None
    spec_num_drafts: float | None = None
    spec_accepted_per_pos: Labelled | None = None
    spec_draft_acceptance_rate: float | None = None
    spec_efficiency: float | None = None
    estimated_flops_per_gpu: float | None = None
    estimated_read_bytes_per_gpu: float | None = None
    estimated_write_bytes_per_gpu: float | None = None
    avg_prompt_throughput: float | None = None
    avg_generation_throughput: float | None = None
    http_responses: Labelled | None = None  # over all handlers
    http: Mapping[str, Labelled] | None = None
    process_start_time: float | None = None  # of the API server
    created_time: float | None = None  # of the counters (V1, one process)


JUDGED = frozenset((
    "requests_running", "requests_waiting", "requests_waiting_by_reason", "requests_swapped", "kv_cache_usage",
    "preemptions", "engine_sleep_state", "prompt_tokens", "generation_tokens", "request_success", "iteration_tokens",
    "ttft", "inter_token_latency", "e2e_latency", "queue_time", "prefill_time", "request_prompt_tokens", "request_generation_tokens",
    "request_params_max_tokens", "decode_time",
    "prefix_cache_hit_rate", "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries",
    "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits", "cache_config_info", "spec_num_accepted_tokens",
    "spec_num_draft_tokens", "spec_draft_acceptance_rate", "process_start_time", "created_time", "kv_failures",
    "kv_transfers", "operations_in_flight", "num_requests_kv_fetch_by_stage", "admission_rejections", "http_responses",
    "lora_requests_info", "engine_steps", "last_engine_iteration", "estimated_flops_per_gpu",
))  # fmt: skip
"""Only these fields are read from a watched engine. With all histograms, a sample would be twice as large."""

COUNTED = frozenset(("iteration_tokens", "prefill_time", "decode_time"))
"""Only count and sum of these histograms are read from a watched engine; `cumulative` stays empty."""


FAILED = "error"
"""The finished_reason of a failed request."""


def served(sample: EngineSample) -> float | None:
    """Return how many requests have ended since the engine's start, except those that the engine failed."""
    ends = sample.request_success
    return None if ends is None else sum(ends.values()) - ends.get(FAILED, 0.0)
