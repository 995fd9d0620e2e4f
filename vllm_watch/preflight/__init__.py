"""Checks before a launch: pure functions from facts about a `vllm serve` command and this machine to findings."""
