"""Locks on restarts: each module with a `Lock` is one kind."""
