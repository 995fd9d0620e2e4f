"""Restarts: the guard decides, hooks act, the journal remembers, verification asks whether it helped."""
