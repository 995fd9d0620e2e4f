"""Turns verdicts into incidents, without I/O."""
