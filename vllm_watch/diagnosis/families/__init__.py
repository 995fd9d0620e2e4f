"""Failure classes with their fixes and messages, one table per family."""
