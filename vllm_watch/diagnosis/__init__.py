"""Diagnose a failed start or a death of vLLM from the lines of its log. All functions are pure."""
