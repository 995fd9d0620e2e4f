"""Whose metrics a body holds that are not vLLM's, by the names of its series."""

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


def whose(names: Iterable[str]) -> str | None:
    """The program that exports these names; None: none that is known here."""
    names = tuple(names)
    return next((who for prefix, who in _PREFIXES if any(name.startswith(prefix) for name in names)), None)  # fmt: skip
