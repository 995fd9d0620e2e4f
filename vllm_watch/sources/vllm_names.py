"""Map each field to every name that vLLM has used for it, newest first.

The first name that a body has is read.

Source: vLLM's metric definitions in releases 0.2.3 to 0.33.0 (`vllm/engine/metrics.py`,
`vllm/v1/metrics/loggers.py`). Ranges of versions include both ends.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


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


def _sum(*names: str) -> Field:
    return Field(Kind.SUM, names)


def _max(*names: str) -> Field:
    return Field(Kind.MAX, names)


def _histogram(*names: str, scale: float = 1.0) -> Field:
    return Field(Kind.HISTOGRAM, names, scale=scale)


def _by(label: str, *names: str) -> Field:
    return Field(Kind.LABELLED, names, label)


def _each(*names: str) -> Field:
    return Field(Kind.FAMILIES, tuple(f"vllm:{name}" for name in names))


def short(name: str) -> str:
    """Return the key of a family in fields of kind FAMILIES."""
    return name.removeprefix("vllm:").removesuffix("_total")


FIELDS: dict[str, Field] = {
    "requests_running": _sum("vllm:num_requests_running"),
    "requests_waiting": _sum("vllm:num_requests_waiting"),
    "requests_waiting_by_reason": _by("reason", "vllm:num_requests_waiting_by_reason"),  # 0.20.0+
    "requests_swapped": _sum("vllm:num_requests_swapped"),  # V0, hidden from 0.8.3
    # V1 has kv_cache_usage_perc from 0.9.2, and lost the old name in 0.12.0.
    "kv_cache_usage": _max("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "cpu_cache_usage": _max("vllm:cpu_cache_usage_perc"),  # V0
    "preemptions": _sum("vllm:num_preemptions_total"),
    "engine_sleep_state": _by("sleep_state", "vllm:engine_sleep_state"),  # 0.11.1+
    "prompt_tokens": _sum("vllm:prompt_tokens_total"),
    "generation_tokens": _sum("vllm:generation_tokens_total"),
    "total_tokens": _sum("vllm:tokens_total"),  # V0 0.6.4 to 0.7.3, never written
    "request_success": _by("finished_reason", "vllm:request_success_total"),
    "iteration_tokens": _histogram("vllm:iteration_tokens_total"),  # a histogram despite its _total
    "engine_steps": _sum("vllm:engine_steps_total"),  # proposed: vLLM #51329
    "last_engine_iteration": _max("vllm:last_engine_iteration_timestamp_seconds"),  # vLLM #42138
    "prompt_tokens_by_source": _by("source", "vllm:prompt_tokens_by_source_total"),  # 0.16.0+
    "prompt_tokens_cached": _sum("vllm:prompt_tokens_cached_total"),  # 0.16.0+
    "prompt_tokens_cached_by_source": _by("source", "vllm:prompt_tokens_cached_by_source_total"),
    "prompt_tokens_recomputed": _sum("vllm:prompt_tokens_recomputed_total"),  # 0.16.0 to 0.19.1
    "corrupted_requests": _sum("vllm:corrupted_requests_total"),
    "admission_rejections": _by("reason", "vllm:admission_rejections_total"),  # 0.32.0+, server
    "ttft": _histogram("vllm:time_to_first_token_seconds"),
    # inter_token_latency_seconds from 0.10.2; the old name was hidden in 0.12.0, removed in 0.15.0
    "inter_token_latency": _histogram(
        "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
    ),
    "request_mean_tpot": _histogram("vllm:request_time_per_output_token_seconds"),  # 0.11.0+
    "e2e_latency": _histogram("vllm:e2e_request_latency_seconds"),
    "queue_time": _histogram("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
    "prefill_time": _histogram("vllm:request_prefill_time_seconds"),
    "decode_time": _histogram("vllm:request_decode_time_seconds"),
    "inference_time": _histogram("vllm:request_inference_time_seconds"),
    "model_forward_time": _histogram("vllm:model_forward_time_milliseconds", scale=1e-3),  # V0
    "model_execute_time": _histogram("vllm:model_execute_time_milliseconds", scale=1e-3),  # V0
    "request_prompt_tokens": _histogram("vllm:request_prompt_tokens"),
    "request_generation_tokens": _histogram("vllm:request_generation_tokens"),
    "request_max_num_generation_tokens": _histogram("vllm:request_max_num_generation_tokens"),
    "request_params_n": _histogram("vllm:request_params_n"),
    "request_params_best_of": _histogram("vllm:request_params_best_of"),  # V0 to 0.6.2
    "request_params_max_tokens": _histogram("vllm:request_params_max_tokens"),
    "request_num_preemptions": _histogram("vllm:request_num_preemptions"),  # 0.30.0+
    "request_prefill_kv_computed_tokens": _histogram("vllm:request_prefill_kv_computed_tokens"),
    "prefix_cache_hit_rate": _max("vllm:gpu_prefix_cache_hit_rate"),  # V0 0.5.5+; -1: off
    "cpu_prefix_cache_hit_rate": _max("vllm:cpu_prefix_cache_hit_rate"),
    # renamed in 0.9.2, like the KV usage
    "prefix_cache_queries": _sum(
        "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"
    ),
    "prefix_cache_hits": _sum("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_prefix_cache_queries": _sum("vllm:external_prefix_cache_queries_total"),  # 0.11.1+
    "external_prefix_cache_hits": _sum("vllm:external_prefix_cache_hits_total"),
    "mm_cache_queries": _sum("vllm:mm_cache_queries_total"),  # 0.11.1+
    "mm_cache_hits": _sum("vllm:mm_cache_hits_total"),
    "cache_config_info": Field(Kind.INFO, ("vllm:cache_config_info",)),
    "kv_block_lifetime_seconds": _histogram("vllm:kv_block_lifetime_seconds"),  # --kv-cache-metrics
    "kv_block_idle_before_evict_seconds": _histogram("vllm:kv_block_idle_before_evict_seconds"),
    "kv_block_reuse_gap_seconds": _histogram("vllm:kv_block_reuse_gap_seconds"),
    "num_requests_kv_fetch_by_stage": _by(
        "stage", "vllm:num_requests_kv_fetch_by_stage"
    ),  # 0.32.0+
    # KV connectors (0.13.0+) and offload (0.24.0+), if enabled
    "kv_failures": _each(
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
    ),
    "kv_transfers": _each(
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
    ),
    # sleep, wake and weight updates (0.33.0+)
    "operations_in_flight": _each(
        "sleep_mode_operations_in_flight", "rl_weight_update_operations_in_flight"
    ),
    "lora_requests_info": Field(Kind.INFO, ("vllm:lora_requests_info",)),
    "spec_num_accepted_tokens": _sum("vllm:spec_decode_num_accepted_tokens_total"),
    "spec_num_draft_tokens": _sum("vllm:spec_decode_num_draft_tokens_total"),
    "spec_num_emitted_tokens": _sum("vllm:spec_decode_num_emitted_tokens_total"),  # V0
    "spec_num_drafts": _sum("vllm:spec_decode_num_drafts_total"),  # V1 0.8.5+
    "spec_accepted_per_pos": _by("position", "vllm:spec_decode_num_accepted_tokens_per_pos_total"),
    "spec_draft_acceptance_rate": _max("vllm:spec_decode_draft_acceptance_rate"),  # V0
    "spec_efficiency": _max("vllm:spec_decode_efficiency"),  # V0
    # estimates (0.17.0+, --enable-mfu-metrics) and old gauges
    "estimated_flops_per_gpu": _sum("vllm:estimated_flops_per_gpu_total"),
    "estimated_read_bytes_per_gpu": _sum("vllm:estimated_read_bytes_per_gpu_total"),
    "estimated_write_bytes_per_gpu": _sum("vllm:estimated_write_bytes_per_gpu_total"),
    "avg_prompt_throughput": _sum("vllm:avg_prompt_throughput_toks_per_s"),  # V0 to 0.6.6.post1
    "avg_generation_throughput": _sum("vllm:avg_generation_throughput_toks_per_s"),
    # all handlers except /health and similar
    "http_responses": _by("status", "http_requests_total"),
    # absent with several API servers, and with the Rust frontend
    "process_start_time": _max("process_start_time_seconds"),
}

PROCESS = {
    "process_open_fds": "process_open_fds",
    "process_cpu_seconds": "process_cpu_seconds_total",
    "process_resident_memory_bytes": "process_resident_memory_bytes",
}

NOT_READ = frozenset(
    (
        "vllm:nixl_bytes_transferred", "vllm:nixl_num_descriptors", "vllm:nixl_post_time_seconds",
        "vllm:mooncake_bytes_transferred", "vllm:mooncake_num_descriptors",
        "vllm:mooncake_store_operation_bytes_total", "vllm:mooncake_store_operation_keys_total",
        "vllm:mooncake_store_operation_time_seconds",
    )
)  # fmt: skip
"""Metrics that are known, but not read."""

HTTP_REQUESTS = "http_requests_total"
"""A counter of the FastAPI instrumentator (vLLM 0.8.3+)."""

HTTP_TOTALS = {
    "request_duration_seconds": "http_request_duration_seconds",
    "request_duration_highr_seconds": "http_request_duration_highr_seconds",
    "request_size_bytes": "http_request_size_bytes",
    "response_size_bytes": "http_response_size_bytes",
}
"""HTTP metrics, summed over all handlers."""

V0_ONLY = frozenset(
    (
        "vllm:num_requests_swapped",
        "vllm:cpu_cache_usage_perc",
        "vllm:avg_prompt_throughput_toks_per_s",
    )
)
"""Metrics that only V0 has. In vLLM 0.7.1 to 0.8.2, V1 has no `engine` label by which it could be recognized."""

V1_ONLY = frozenset(
    (
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prompt_tokens_created",
    )
)
"""Metrics that only V1 has. V0 never exported `_created` series."""

_SANITIZED = "ray_vllm_"


def canonical(name: str) -> str:
    """Return a series' name as in vLLM's own /metrics.

    Ray's agent adds the prefix `ray_`. From vLLM 0.11.0, the names have `_` instead of the colon.
    """
    if not name.startswith("ray_"):
        return name
    if name.startswith(_SANITIZED):
        return "vllm:" + name[len(_SANITIZED) :]
    return name[len("ray_") :]


_NIM_HAS = {"num_requests_running", "num_requests_waiting"}
_NIM_OTHER = {"request_finish_total": "vllm:request_success_total"}
_NIM_OWN = frozenset(("request_success_total", "request_failure_total"))
"""NIM's own counters. They are not read, because request_finish_total counts all requests."""

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
_SUFFIXES = (*HISTOGRAM_SUFFIXES, "_created")
_PLAIN = {name.removeprefix("vllm:") for field in FIELDS.values() for name in field.names if name.startswith("vllm:")}  # fmt: skip


def is_nim(names: Collection[str]) -> bool:
    """Return True for an NVIDIA NIM, which drops the prefix of vLLM's names."""
    return _NIM_HAS.issubset(names) and not any(name.startswith("vllm:") for name in names)


def of_nim(name: str) -> str:
    """Return vLLM's name for a series of NVIDIA NIM. Other names are returned unchanged."""
    bases = {name, *(name.removesuffix(each) for each in _SUFFIXES)}
    if name in _NIM_OWN or not bases & _PLAIN:
        return _NIM_OTHER.get(name, name)
    return "vllm:" + name


UNKNOWN_FAMILIES_MAX = 100


def unknown_families(names: Collection[str]) -> tuple[str, ...]:
    """Return up to UNKNOWN_FAMILIES_MAX families that are neither read nor in NOT_READ."""
    known = NOT_READ.union(*(field.names for field in FIELDS.values()))
    unknown = set()
    for name in names:
        bases = {name, name + "_total", *(name.removesuffix(s) for s in HISTOGRAM_SUFFIXES)}
        if name.endswith("_created"):
            base = name.removesuffix("_created")
            bases |= {base, base + "_total"}
        if not bases & known:
            unknown.add(_family(name))
    return tuple(sorted(unknown)[:UNKNOWN_FAMILIES_MAX])


def _family(name: str) -> str:
    for suffix in (*HISTOGRAM_SUFFIXES, "_total", "_created"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
