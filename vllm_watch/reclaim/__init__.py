"""Manual reclaim of GPU memory from stale processes."""
