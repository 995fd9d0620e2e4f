"""One engine's metrics, with the fields of every vLLM release.

Each field names its metrics, newest first. The first that a body has is read. Source: vLLM's metric
definitions in releases 0.2.3 to 0.33.0 (`vllm/engine/metrics.py`, `vllm/v1/metrics/loggers.py`).
Ranges of versions include both ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import partial
from typing import Any

from vllm_watch.samples.record import short_record

Labelled = Mapping[str, float]  # value of one label (finished_reason, source, …) → value


@short_record
class Histogram:
    """A Prometheus histogram, cumulative since the engine's start."""

    count: float
    sum: float | None
    bounds: tuple[float, ...] = ()  # upper bounds in ascending order; the last is +Inf
    cumulative: tuple[float, ...] = ()  # observations up to each bound


class Kind(Enum):
    """How a field's value is computed from its series."""

    SUM = "sum"
    MAX = "max"
    HISTOGRAM = "histogram"
    LABELLED = "labelled"
    FAMILIES = "families"  # each family's number, or its histogram's count
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Field:
    """The names of a field. `scale` converts the unit to seconds."""

    kind: Kind
    names: tuple[str, ...]
    label: str = ""
    scale: float = 1.0


def _read(
    kind: Kind, *names: str, label: str = "", scale: float = 1.0, prefix: str = "vllm:"
) -> Any:
    names = tuple(prefix + name for name in names)
    return field(default=None, metadata={"read": Field(kind, names, label, scale)})


def _by(label: str, name: str, prefix: str = "vllm:") -> Any:
    return _read(Kind.LABELLED, name, label=label, prefix=prefix)


_sum, _max = partial(_read, Kind.SUM), partial(_read, Kind.MAX)
_histogram, _info = partial(_read, Kind.HISTOGRAM), partial(_read, Kind.INFO)
_each = partial(_read, Kind.FAMILIES)


@short_record
class EngineSample:
    """Gauges, counters since start and histograms of one engine.

    A field that this engine does not export is None. Metrics without an `engine` label (http, old
    cache_config_info) are repeated on each engine.
    """

    engine: str  # vLLM's `engine` label, "0" if it has none
    model_name: str | None = None
    requests_running: float | None = _sum("num_requests_running")
    requests_waiting: float | None = _sum("num_requests_waiting")
    requests_waiting_by_reason: Labelled | None = _by("reason", "num_requests_waiting_by_reason")
    requests_swapped: float | None = _sum("num_requests_swapped")  # V0, hidden from 0.8.3
    # V1 has kv_cache_usage_perc from 0.9.2, and lost the old name in 0.12.0.
    kv_cache_usage: float | None = _max("kv_cache_usage_perc", "gpu_cache_usage_perc")
    cpu_cache_usage: float | None = _max("cpu_cache_usage_perc")  # V0
    preemptions: float | None = _sum("num_preemptions_total")
    # awake, weights_offloaded, discard_all → 0 or 1; 0.11.1+
    engine_sleep_state: Labelled | None = _by("sleep_state", "engine_sleep_state")
    # grows at the end of a prefill; includes prefix cache hits
    prompt_tokens: float | None = _sum("prompt_tokens_total")
    generation_tokens: float | None = _sum("generation_tokens_total")
    total_tokens: float | None = _sum("tokens_total")  # V0 0.6.4 to 0.7.3, never written
    # includes aborts and errors
    request_success: Labelled | None = _by("finished_reason", "request_success_total")
    # tokens per step; its count is the number of steps, despite its _total
    iteration_tokens: Histogram | None = _histogram("iteration_tokens_total")
    # steps of the scheduler, over all API servers; proposed: vLLM #51329
    engine_steps: float | None = _sum("engine_steps_total")
    # Unix seconds; vLLM #42138
    last_engine_iteration: float | None = _max("last_engine_iteration_timestamp_seconds")
    # 0.16.0+
    prompt_tokens_by_source: Labelled | None = _by("source", "prompt_tokens_by_source_total")
    prompt_tokens_cached: float | None = _sum("prompt_tokens_cached_total")  # 0.16.0+
    prompt_tokens_cached_by_source: Labelled | None = _by(
        "source", "prompt_tokens_cached_by_source_total"
    )
    # 0.16.0 to 0.19.1
    prompt_tokens_recomputed: float | None = _sum("prompt_tokens_recomputed_total")
    corrupted_requests: float | None = _sum("corrupted_requests_total")
    # 0.32.0+, server
    admission_rejections: Labelled | None = _by("reason", "admission_rejections_total")
    # seconds
    ttft: Histogram | None = _histogram("time_to_first_token_seconds")
    # inter_token_latency_seconds from 0.10.2; the old name was hidden in 0.12.0, removed in 0.15.0
    inter_token_latency: Histogram | None = _histogram(
        "inter_token_latency_seconds", "time_per_output_token_seconds"
    )
    # 0.11.0+
    request_mean_tpot: Histogram | None = _histogram("request_time_per_output_token_seconds")
    e2e_latency: Histogram | None = _histogram("e2e_request_latency_seconds")
    queue_time: Histogram | None = _histogram(
        "request_queue_time_seconds", "time_in_queue_requests"
    )
    prefill_time: Histogram | None = _histogram("request_prefill_time_seconds")
    decode_time: Histogram | None = _histogram("request_decode_time_seconds")
    inference_time: Histogram | None = _histogram("request_inference_time_seconds")
    # V0
    model_forward_time: Histogram | None = _histogram("model_forward_time_milliseconds", scale=1e-3)
    model_execute_time: Histogram | None = _histogram("model_execute_time_milliseconds", scale=1e-3)
    request_prompt_tokens: Histogram | None = _histogram("request_prompt_tokens")
    request_generation_tokens: Histogram | None = _histogram("request_generation_tokens")
    request_max_num_generation_tokens: Histogram | None = _histogram(
        "request_max_num_generation_tokens"
    )
    request_params_n: Histogram | None = _histogram("request_params_n")
    request_params_best_of: Histogram | None = _histogram("request_params_best_of")  # V0 to 0.6.2
    request_params_max_tokens: Histogram | None = _histogram("request_params_max_tokens")
    request_num_preemptions: Histogram | None = _histogram("request_num_preemptions")  # 0.30.0+
    request_prefill_kv_computed_tokens: Histogram | None = _histogram(
        "request_prefill_kv_computed_tokens"
    )
    # V0 0.5.5+; -1 if prefix caching is off
    prefix_cache_hit_rate: float | None = _max("gpu_prefix_cache_hit_rate")
    cpu_prefix_cache_hit_rate: float | None = _max("cpu_prefix_cache_hit_rate")
    # renamed in 0.9.2, like the KV usage; blocks up to vLLM 0.8.5.post1, tokens from 0.9.0
    prefix_cache_queries: float | None = _sum(
        "prefix_cache_queries_total", "gpu_prefix_cache_queries_total"
    )
    prefix_cache_hits: float | None = _sum("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")
    # 0.11.1+
    external_prefix_cache_queries: float | None = _sum("external_prefix_cache_queries_total")
    external_prefix_cache_hits: float | None = _sum("external_prefix_cache_hits_total")
    mm_cache_queries: float | None = _sum("mm_cache_queries_total")  # 0.11.1+
    mm_cache_hits: float | None = _sum("mm_cache_hits_total")
    # as Python prints it: "None", "True"
    cache_config_info: Mapping[str, str] | None = _info("cache_config_info")
    # --kv-cache-metrics
    kv_block_lifetime_seconds: Histogram | None = _histogram("kv_block_lifetime_seconds")
    kv_block_idle_before_evict_seconds: Histogram | None = _histogram(
        "kv_block_idle_before_evict_seconds"
    )
    kv_block_reuse_gap_seconds: Histogram | None = _histogram("kv_block_reuse_gap_seconds")
    # 0.32.0+
    num_requests_kv_fetch_by_stage: Labelled | None = _by("stage", "num_requests_kv_fetch_by_stage")
    # vLLM's metric name without the common prefix → value; of KV connectors (0.13.0+) and offload
    # (0.24.0+), if enabled: failed or late transfers, stores and loads
    kv_failures: Labelled | None = _each(
        "nixl_num_failed_transfers_total",
        "nixl_num_failed_notifications_total",
        "nixl_num_kv_expired_reqs_total",
        "nixl_num_notifications_after_expiry_total",
        "mooncake_num_failed_transfers_total",
        "mooncake_num_failed_recvs_total",
        "mooncake_num_kv_expired_reqs_total",
        "mooncake_store_operation_failed_keys_total",
        "hf3fs_num_failed_load_total",
        "hf3fs_num_failed_save_total",
        "umbp_transfer_failed_total",
        "kv_offload_allocation_failure_total",
        "kv_offload_tiering_cascade_job_failures_total",
        "kv_offload_tiering_promotion_job_failures_total",
        "kv_offload_tiering_promotion_allocation_failures_total",
    )
    kv_transfers: Labelled | None = _each(
        "nixl_xfer_time_seconds",
        "mooncake_xfer_time_seconds",
        "mooncake_store_operation_total",
        "hf3fs_load_duration_seconds",
        "hf3fs_save_duration_seconds",
        "umbp_transfer_completed_total",
        "kv_offload_load_size",
        "kv_offload_store_size",
        "kv_offload_load_bytes_total",
        "kv_offload_store_bytes_total",
    )
    # running now: sleep, wake, weight updates (0.33.0+)
    operations_in_flight: Labelled | None = _each(
        "sleep_mode_operations_in_flight", "rl_weight_update_operations_in_flight"
    )
    # labels of the newest series
    lora_requests_info: Mapping[str, str] | None = _info("lora_requests_info")
    spec_num_accepted_tokens: float | None = _sum("spec_decode_num_accepted_tokens_total")
    spec_num_draft_tokens: float | None = _sum("spec_decode_num_draft_tokens_total")
    spec_num_emitted_tokens: float | None = _sum("spec_decode_num_emitted_tokens_total")  # V0
    spec_num_drafts: float | None = _sum("spec_decode_num_drafts_total")  # V1 0.8.5+
    spec_accepted_per_pos: Labelled | None = _by(
        "position", "spec_decode_num_accepted_tokens_per_pos_total"
    )
    spec_draft_acceptance_rate: float | None = _max("spec_decode_draft_acceptance_rate")  # V0
    spec_efficiency: float | None = _max("spec_decode_efficiency")  # V0
    # estimates (0.17.0+, --enable-mfu-metrics) and old gauges
    estimated_flops_per_gpu: float | None = _sum("estimated_flops_per_gpu_total")
    estimated_read_bytes_per_gpu: float | None = _sum("estimated_read_bytes_per_gpu_total")
    estimated_write_bytes_per_gpu: float | None = _sum("estimated_write_bytes_per_gpu_total")
    # V0 to 0.6.6.post1
    avg_prompt_throughput: float | None = _sum("avg_prompt_throughput_toks_per_s")
    avg_generation_throughput: float | None = _sum("avg_generation_throughput_toks_per_s")
    # all handlers except /health and similar
    http_responses: Labelled | None = _by("status", "http_requests_total", prefix="")
    http: Mapping[str, Labelled] | None = None
    # of the API server; absent with several API servers, and with the Rust frontend
    process_start_time: float | None = _max("process_start_time_seconds", prefix="")
    created_time: float | None = None  # of the counters (V1, one process)


FIELDS: Mapping[str, Field] = {
    each.name: each.metadata["read"] for each in fields(EngineSample) if each.metadata
}

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
