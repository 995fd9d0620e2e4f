"""Detectors: one phenomenon per file. Pure: no I/O, no clock; times come with the data."""
