"""Locks on restarts, one kind per file: each module here with a `Lock` is one."""
