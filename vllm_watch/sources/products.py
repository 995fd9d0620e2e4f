"""Recognize the metrics of products other than vLLM."""

from collections.abc import Iterable

OURS = "vllm-watch"

_PREFIXES = (
    ("vllm_watch_", OURS),
    ("sglang:", "SGLang"),
    ("tgi_", "Text Generation Inference"),
    ("llamacpp:", "llama.cpp"),
    ("nv_inference_", "Triton"),
    ("litellm_", "LiteLLM"),
    ("DCGM_FI_", "NVIDIA's DCGM exporter"),
    ("node_exporter_", "node_exporter"),
    ("alertmanager_build_info", "Alertmanager"),
    ("prometheus_build_info", "Prometheus"),
    ("prometheus_tsdb_", "Prometheus"),
)


def product_of(names: Iterable[str]) -> str | None:
    """Return the product's name."""
    names = tuple(names)
    return next((product for prefix, product in _PREFIXES if any(name.startswith(prefix) for name in names)), None)  # fmt: skip
