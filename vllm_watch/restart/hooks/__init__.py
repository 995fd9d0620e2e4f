"""Ways to restart an engine, one kind per file: each module here with a `Hook` is one, the others help."""
