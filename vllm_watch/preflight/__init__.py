"""Check a `vllm serve` command before its launch."""
