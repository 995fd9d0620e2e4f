"""A simulated vLLM and its GPUs behind the real wire formats: for the demo, benches and fault tests."""
