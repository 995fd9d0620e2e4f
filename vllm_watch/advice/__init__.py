"""Advice on settings, not alarms, from observations of running engines. No I/O."""
