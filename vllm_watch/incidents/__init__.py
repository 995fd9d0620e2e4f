"""Turns verdicts into incidents. Pure."""
