"""A whole watcher over the lab's engines for days of virtual time, under faults, with what must never happen watched."""
