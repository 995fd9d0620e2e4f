"""A simulated vLLM and its GPUs, with the real wire formats."""
