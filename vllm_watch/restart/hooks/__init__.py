"""Restart hooks: each module with a `Hook` is one kind, the others are helpers."""
