"""Restart hooks: each module with a `Hook` is one kind."""
