"""vllm-watch: reads vLLM engines and their GPUs, judges their health, shows it, and can restart them safely."""

__version__ = "0.1.0"
