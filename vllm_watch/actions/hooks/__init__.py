"""Ways to restart an engine, one kind per file: each module here with `Settings` and `Hook` is one."""
