"""Facts and output of `preflight`."""
