"""Plan GPU memory for a model, its engine flags and a GPU before a start.

Pure arithmetic over a config: reads no file and queries no GPU.
"""
