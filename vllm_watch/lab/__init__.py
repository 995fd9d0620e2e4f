"""A simulated vLLM and its GPUs, with the real formats of /metrics and HTTP."""
