"""Diagnose a failed start or a death of vLLM from its log."""
