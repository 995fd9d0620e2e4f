"""Checks before a launch: facts about a `vllm serve` command and this machine in, findings out. Pure."""
