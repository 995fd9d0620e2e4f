"""Holders of GPU memory, and stale ones among them, from a series of polls. Pure."""
