"""Helpers that any part may use."""
