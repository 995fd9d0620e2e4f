"""Will it fit: what a model, its engine flags and a GPU come to, before anything is started.

Pure arithmetic over a model's config: no file is read and no GPU is asked in here.
"""
