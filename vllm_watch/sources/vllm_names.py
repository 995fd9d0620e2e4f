"""The names of vLLM's metrics in Ray's and NVIDIA's builds, and those that are not fields of an engine."""

from collections.abc import Collection

from vllm_watch.samples.engine import FIELDS


def short(name: str) -> str:
    """Return the key of a family in fields of kind FAMILIES."""
    return name.removeprefix("vllm:").removesuffix("_total")


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
    if name.startswith(_SANITIZED):
        return "vllm:" + name.removeprefix(_SANITIZED)
    return name.removeprefix("ray_")


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
            ends = (*HISTOGRAM_SUFFIXES, "_total", "_created")
            unknown.add(name.removesuffix(next(filter(name.endswith, ends), "")))
    return tuple(sorted(unknown)[:UNKNOWN_FAMILIES_MAX])
