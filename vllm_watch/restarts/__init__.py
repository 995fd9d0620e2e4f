"""Joins watching and restarting: what the daemon sees, what people want, and what is shown of it."""
