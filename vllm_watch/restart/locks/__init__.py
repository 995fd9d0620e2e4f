"""Ways to agree on who may restart, one kind per file: each module here with a `Lock` is one."""
