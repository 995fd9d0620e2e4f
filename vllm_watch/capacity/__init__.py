"""Plan GPU memory before a start, without reading files or GPUs."""
