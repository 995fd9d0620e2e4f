"""Plan GPU memory before a start, from a model's config, its engine flags and a GPU, without reading files or GPUs."""
