"""Frozen records of what was seen and when, in base units; no behaviour, no I/O."""
