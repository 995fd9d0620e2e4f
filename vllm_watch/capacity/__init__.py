"""Plan GPU memory before a start: arithmetic over a config; reads no file, queries no GPU."""
