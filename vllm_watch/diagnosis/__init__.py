"""Reads a log of vLLM and says why it did not start, or what it died of. Pure: lines in, a diagnosis out."""
