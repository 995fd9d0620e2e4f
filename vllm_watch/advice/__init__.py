"""Advice on settings, from observations of running engines."""
