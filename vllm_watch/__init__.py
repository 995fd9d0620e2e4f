"""vllm-watch: monitors vLLM engines and their GPUs, reports faults with evidence, and can restart engines safely."""

__version__ = "0.2.0"
