"""Holders of GPU memory, and stale ones. Pure."""
