"""Diagnose a failed start or a death of vLLM from its log. Pure: lines in, a diagnosis out."""
