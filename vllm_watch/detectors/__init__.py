"""Detectors, one phenomenon per file. They do no I/O and read no clock."""
