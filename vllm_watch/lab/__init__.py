"""A simulated vLLM and its GPUs behind the real wire formats."""
