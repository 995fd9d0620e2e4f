"""vLLM 0.7.3 with the V0 engine. Two processes share one registry."""

from vllm_watch.lab.release import INF, TOKEN_COUNTS, Family, Release

# fmt: off
_STEP_TOKENS = (
    1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0, 72.0, 80.0, 88.0, 96.0,
    104.0, 112.0, 120.0, 128.0, 136.0, 144.0, 152.0, 160.0, 168.0, 176.0, 184.0, 192.0, 200.0,
    208.0, 216.0, 224.0, 232.0, 240.0, 248.0, 256.0, INF,
)
_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
    10.0, INF,
)
_TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, INF,
)
_REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, INF,
)
_PARAMS_N = (1.0, 2.0, 5.0, 10.0, 20.0, INF)

_FAMILIES = (
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
    Family("vllm:iteration_tokens_total", "histogram", "iteration_tokens", "Histogram of number of tokens per engine_step.", bounds=_STEP_TOKENS),
    Family("vllm:time_to_first_token_seconds", "histogram", "ttft", "Histogram of time to first token in seconds.", bounds=_FIRST_TOKEN_SECONDS),
    Family("vllm:time_per_output_token_seconds", "histogram", "inter_token_latency", "Histogram of time per output token in seconds.", bounds=_TOKEN_SECONDS),
    Family("vllm:e2e_request_latency_seconds", "histogram", "e2e_latency", "Histogram of end to end request latency in seconds.", bounds=_REQUEST_SECONDS),
    Family("vllm:request_queue_time_seconds", "histogram", "queue_time", "Histogram of time spent in WAITING phase for request.", bounds=_REQUEST_SECONDS),
    Family("vllm:request_inference_time_seconds", "histogram", "inference_time", "Histogram of time spent in RUNNING phase for request.", bounds=_REQUEST_SECONDS),
    Family("vllm:request_prefill_time_seconds", "histogram", "prefill_time", "Histogram of time spent in PREFILL phase for request.", bounds=_REQUEST_SECONDS),
    Family("vllm:request_decode_time_seconds", "histogram", "decode_time", "Histogram of time spent in DECODE phase for request.", bounds=_REQUEST_SECONDS),
    Family("vllm:time_in_queue_requests", "histogram", "queue_time", "Histogram of time the request spent in the queue in seconds.", bounds=_REQUEST_SECONDS),
    Family("vllm:request_prompt_tokens", "histogram", "request_prompt_tokens", "Number of prefill tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:request_generation_tokens", "histogram", "request_generation_tokens", "Number of generation tokens processed.", bounds=TOKEN_COUNTS),
    Family("vllm:request_params_n", "histogram", "request_params_n", "Histogram of the n request parameter.", bounds=_PARAMS_N),
    Family("vllm:request_max_num_generation_tokens", "histogram", "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", bounds=TOKEN_COUNTS),
    Family("vllm:request_params_max_tokens", "histogram", "request_params_max_tokens", "Histogram of the max_tokens request parameter.", bounds=TOKEN_COUNTS),
    Family("vllm:cache_config_info", "info", "cache_config_info", "Information of the LLMEngine CacheConfig"),
)

_CACHE_CONFIG = {
    "cache_dtype": "auto", "calculate_kv_scales": "None", "cpu_offload_gb": "0",
    "enable_prefix_caching": "False", "gpu_memory_utilization": "0.9",
    "is_attention_free": "False", "num_cpu_blocks": "2048", "num_gpu_blocks_override": "None",
    "sliding_window": "None", "swap_space_bytes": "4294967296",
}
# fmt: on

V0 = Release(
    version="0.7.3",
    engine_kind="V0",
    families=_FAMILIES,
    cache_config=_CACHE_CONFIG,
    finished_reasons=(),  # V0 creates a series when its reason first occurs
    engine_label=False,
    http=False,
    multiprocess=True,
)
