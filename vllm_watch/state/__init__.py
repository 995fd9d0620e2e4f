"""What outlives the watcher: one SQLite file, written by one worker thread, apart from all that judges."""
