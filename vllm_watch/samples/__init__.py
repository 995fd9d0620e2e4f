"""Frozen records of measurements with their time, in base units; no behaviour, no I/O."""
