"""The metric families that vLLM 0.7 (V0) and 0.33 (V1) write."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

INF = float("inf")

TOKEN_COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, INF)
"""Bucket bounds in 1-2-5 steps, up to the simulation's maximum length of 8,192 tokens."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family and the field of EngineSample that it exports."""

    name: str  # counters end with _total
    type: str  # "gauge" | "counter" | "histogram" | "info"
    field: str
    help: str
    label: str = ""
    bounds: tuple[float, ...] = ()
    server_wide: bool = False  # one series for all engines


@dataclass(frozen=True)
class Release:
    """One vLLM release in one mode of serving."""

    version: str
    engine_kind: str  # "V0" | "V1"
    families: tuple[Family, ...]
    cache_config: Mapping[str, str]  # labels of cache_config_info, equal for all engines
    finished_reasons: tuple[str, ...]  # their series exist from the start
    engine_label: bool = True
    http: bool = True  # with http_* families
    multiprocess: bool = False  # several processes share one registry

    @cached_property
    def bounds(self) -> Mapping[str, tuple[float, ...]]:
        return {f.field: f.bounds for f in self.families if f.type == "histogram"}


# fmt: off
# vLLM 0.7.3 with the V0 engine. Two processes share one registry.
_V0_STEP_TOKENS = (
    1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0, 72.0, 80.0, 88.0, 96.0,
    104.0, 112.0, 120.0, 128.0, 136.0, 144.0, 152.0, 160.0, 168.0, 176.0, 184.0, 192.0, 200.0,
    208.0, 216.0, 224.0, 232.0, 240.0, 248.0, 256.0, INF,
)
_V0_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, INF,
)
_V0_TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, INF,
)
_V0_REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, INF,
)
_PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0, INF)

_V0_FAMILIES = (
    Family("vllm:lora_requests_info", "info", "lora_requests_info", "Running stats on lora requests.", server_wide=True),
    Family("vllm:num_preemptions_total", "counter", "preemptions", "Cumulative number of preemption from the engine."),
    Family("vllm:prompt_tokens_total", "counter", "prompt_tokens", "Number of prefill tokens processed."),
    Family("vllm:generation_tokens_total", "counter", "generation_tokens", "Number of generation tokens processed."),
    Family("vllm:request_success_total", "counter", "request_success", "Count of successfully processed requests.", label="finished_reason"),
    Family("vllm:num_requests_running", "gauge", "requests_running", "Number of requests currently running on GPU."),
    Family("vllm:num_requests_swapped", "gauge", "requests_swapped", "Number of requests swapped to CPU."),
    Family("vllm:num_requests_waiting", "gauge", "requests_waiting", "Number of requests waiting to be processed."),
    Family("vllm:gpu_cache_usage_perc", "gauge", "kv_cache_usage", "GPU KV-cache usage. 1 means 100 percent usage."),
    Family("vllm:cpu_cache_usage_perc", "gauge", "cpu_cache_usage", "CPU KV-cache usage. 1 means 100 percent usage."),
    Family("vllm:cpu_prefix_cache_hit_rate", "gauge", "cpu_prefix_cache_hit_rate", "CPU prefix cache block hit rate."),
    Family("vllm:gpu_prefix_cache_hit_rate", "gauge", "prefix_cache_hit_rate", "GPU prefix cache block hit rate."),
    Family("vllm:iteration_tokens_total", "histogram", "iteration_tokens", "Histogram of number of tokens per engine_step.", bounds=_V0_STEP_TOKENS),
    Family("vllm:time_to_first_token_seconds", "histogram", "ttft", "Histogram of time to first token in seconds.", bounds=_V0_FIRST_TOKEN_SECONDS),
    Family("vllm:time_per_output_token_seconds", "histogram", "inter_token_latency", "Histogram of time per output token in seconds.", bounds=_V0_TOKEN_SECONDS),
    Family("vllm:e2e_request_latency_seconds", "histogram", "e2e_latency", "Histogram of end to end request latency in seconds.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:request_queue_time_seconds", "histogram", "queue_time", "Histogram of time spent in WAITING phase for request.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:request_inference_time_seconds", "histogram", "inference_time", "Histogram of time spent in RUNNING phase for request.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:request_prefill_time_seconds", "histogram", "prefill_time", "Histogram of time spent in PREFILL phase for request.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:request_decode_time_seconds", "histogram", "decode_time", "Histogram of time spent in DECODE phase for request.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:time_in_queue_requests", "histogram", "queue_time", "Histogram of time the request spent in the queue in seconds.", bounds=_V0_REQUEST_SECONDS),
    Family("vllm:request_prompt_tokens", "histogram", "request_prompt_tokens", "Number of prefill tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:request_generation_tokens", "histogram", "request_generation_tokens", "Number of generation tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:request_params_n", "histogram", "request_params_n", "Histogram of the n request parameter.", bounds=_PARAMS_N),
    Family("vllm:request_max_num_generation_tokens", "histogram", "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", bounds=TOKEN_COUNTS),
    Family("vllm:request_params_max_tokens", "histogram", "request_params_max_tokens", "Histogram of the max_tokens request parameter.", bounds=TOKEN_COUNTS),
    Family("vllm:cache_config_info", "info", "cache_config_info", "Information of the LLMEngine CacheConfig"),
)

_V0_CACHE_CONFIG = {
    "cache_dtype": "auto", "calculate_kv_scales": "None", "cpu_offload_gb": "0",
    "enable_prefix_caching": "False", "gpu_memory_utilization": "0.9",
    "is_attention_free": "False", "num_cpu_blocks": "2048", "num_gpu_blocks_override": "None",
    "sliding_window": "None", "swap_space_bytes": "4294967296",
}
# fmt: on

V0 = Release(
    version="0.7.3",
    engine_kind="V0",
    families=_V0_FAMILIES,
    cache_config=_V0_CACHE_CONFIG,
    finished_reasons=(),  # V0 creates a series when its reason first occurs
    engine_label=False,
    http=False,
    multiprocess=True,
)


# fmt: off
# vLLM 0.33.0 with the V1 engine.
_V1_STEP_TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
    INF,
)
_V1_FIRST_TOKEN_SECONDS = (*_V0_FIRST_TOKEN_SECONDS[:-1], 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0, INF)
_V1_TOKEN_SECONDS = (*_V0_TOKEN_SECONDS[:-1], 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, INF)
_V1_REQUEST_SECONDS = (*_V0_REQUEST_SECONDS[:-1], 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0, INF)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0, INF)

_V1_FAMILIES = (
    Family("vllm:spec_decode_num_drafts_total", "counter", "spec_num_drafts", "Number of spec decoding drafts."),
    Family("vllm:spec_decode_num_draft_tokens_total", "counter", "spec_num_draft_tokens", "Number of draft tokens."),
    Family("vllm:spec_decode_num_accepted_tokens_total", "counter", "spec_num_accepted_tokens", "Number of accepted tokens."),
    Family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", "spec_accepted_per_pos", "Accepted tokens per draft position.", label="position"),
    Family("vllm:estimated_flops_per_gpu_total", "counter", "estimated_flops_per_gpu", "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations)."),
    Family("vllm:estimated_read_bytes_per_gpu_total", "counter", "estimated_read_bytes_per_gpu", "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations)."),
    Family("vllm:estimated_write_bytes_per_gpu_total", "counter", "estimated_write_bytes_per_gpu", "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations)."),
    Family("vllm:num_requests_running", "gauge", "requests_running", "Number of requests in model execution batches."),
    Family("vllm:num_requests_waiting", "gauge", "requests_waiting", "Number of requests waiting to be processed."),
    Family("vllm:num_requests_waiting_by_reason", "gauge", "requests_waiting_by_reason", "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.", label="reason"),
    Family("vllm:engine_sleep_state", "gauge", "engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", label="sleep_state"),
    Family("vllm:kv_cache_usage_perc", "gauge", "kv_cache_usage", "KV-cache usage. 1 means 100 percent usage."),
    Family("vllm:prefix_cache_queries_total", "counter", "prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    Family("vllm:prefix_cache_hits_total", "counter", "prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    Family("vllm:external_prefix_cache_queries_total", "counter", "external_prefix_cache_queries", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens."),
    Family("vllm:external_prefix_cache_hits_total", "counter", "external_prefix_cache_hits", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens."),
    Family("vllm:mm_cache_queries_total", "counter", "mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    Family("vllm:mm_cache_hits_total", "counter", "mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
    Family("vllm:num_preemptions_total", "counter", "preemptions", "Cumulative number of preemption from the engine."),
    Family("vllm:prompt_tokens_total", "counter", "prompt_tokens", "Number of prefill tokens processed."),
    Family("vllm:prompt_tokens_by_source_total", "counter", "prompt_tokens_by_source", "Number of prompt tokens by source.", label="source"),
    Family("vllm:prompt_tokens_cached_total", "counter", "prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    Family("vllm:prompt_tokens_cached_by_source_total", "counter", "prompt_tokens_cached_by_source", "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.", label="source"),
    Family("vllm:generation_tokens_total", "counter", "generation_tokens", "Number of generation tokens processed."),
    Family("vllm:request_success_total", "counter", "request_success", "Count of successfully processed requests.", label="finished_reason"),
    Family("vllm:admission_rejections_total", "counter", "admission_rejections", "Number of admission attempts rejected by a queue limit, by reason.", label="reason", server_wide=True),
    Family("vllm:request_prompt_tokens", "histogram", "request_prompt_tokens", "Number of prefill tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:request_generation_tokens", "histogram", "request_generation_tokens", "Number of generation tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:iteration_tokens_total", "histogram", "iteration_tokens", "Histogram of number of tokens per engine_step.", bounds=_V1_STEP_TOKENS),
    Family("vllm:request_max_num_generation_tokens", "histogram", "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", bounds=TOKEN_COUNTS),
    Family("vllm:request_params_n", "histogram", "request_params_n", "Histogram of the n request parameter.", bounds=_PARAMS_N),
    Family("vllm:request_params_max_tokens", "histogram", "request_params_max_tokens", "Histogram of the max_tokens request parameter.", bounds=TOKEN_COUNTS),
    Family("vllm:time_to_first_token_seconds", "histogram", "ttft", "Histogram of time to first token in seconds.", bounds=_V1_FIRST_TOKEN_SECONDS),
    Family("vllm:inter_token_latency_seconds", "histogram", "inter_token_latency", "Histogram of inter-token latency in seconds.", bounds=_V1_TOKEN_SECONDS),
    Family("vllm:request_time_per_output_token_seconds", "histogram", "request_mean_tpot", "Histogram of time_per_output_token_seconds per request.", bounds=_V1_TOKEN_SECONDS),
    Family("vllm:e2e_request_latency_seconds", "histogram", "e2e_latency", "Histogram of e2e request latency in seconds.", bounds=_V1_REQUEST_SECONDS),
    Family("vllm:request_queue_time_seconds", "histogram", "queue_time", "Histogram of time spent in WAITING phase for request.", bounds=_V1_REQUEST_SECONDS),
    Family("vllm:request_inference_time_seconds", "histogram", "inference_time", "Histogram of time spent in RUNNING phase for request.", bounds=_V1_REQUEST_SECONDS),
    Family("vllm:request_prefill_time_seconds", "histogram", "prefill_time", "Histogram of time spent in PREFILL phase for request.", bounds=_V1_REQUEST_SECONDS),
    Family("vllm:request_decode_time_seconds", "histogram", "decode_time", "Histogram of time spent in DECODE phase for request.", bounds=_V1_REQUEST_SECONDS),
    Family("vllm:request_num_preemptions", "histogram", "request_num_preemptions", "Histogram of the number of times a request was preempted.", bounds=_PREEMPTIONS),
    Family("vllm:request_prefill_kv_computed_tokens", "histogram", "request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", bounds=TOKEN_COUNTS),
    Family("vllm:lora_requests_info", "info", "lora_requests_info", "Running stats on lora requests.", server_wide=True),
    Family("vllm:cache_config_info", "info", "cache_config_info", "Information of the LLMEngine CacheConfig"),
)

_V1_CACHE_CONFIG = {
    "_block_size_resolved": "True", "cache_dtype": "auto", "cache_hit_alignment_tokens": "None",
    "effective_attention_block_size": "None", "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True", "gpu_memory_utilization": "0.92",
    "hash_block_size": "None", "is_attention_free": "False", "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None", "kv_cache_memory_bytes": "None",
    "kv_offloading_backend": "native", "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False", "mamba_block_size": "None", "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none", "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "auto", "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None", "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256", "prefix_match_unit": "None",
    "replayssm_buffer_len": "16", "simple_cpu_offload_num_blocks": "None",
    "skip_page_size_padded": "None", "sliding_window": "None", "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False", "use_replayssm": "False",
    "user_specified_block_size": "False",
}
# fmt: on

V1 = Release(
    version="0.33.0",
    engine_kind="V1",
    families=_V1_FAMILIES,
    cache_config=_V1_CACHE_CONFIG,
    finished_reasons=("stop", "length", "abort", "error", "repetition"),
)

V1_SEVERAL_API_SERVERS = replace(V1, multiprocess=True)
