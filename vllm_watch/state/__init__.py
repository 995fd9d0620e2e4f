"""State that outlives the watcher: one SQLite file, written by one worker thread."""
