"""Advice on settings, from running engines; not alarms. Pure."""
