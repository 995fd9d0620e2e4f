"""Restarts: the guard decides, hooks act, the journal records, verification checks the result."""
