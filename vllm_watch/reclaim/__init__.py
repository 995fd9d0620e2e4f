"""GPU memory taken back by hand from what is stale."""
