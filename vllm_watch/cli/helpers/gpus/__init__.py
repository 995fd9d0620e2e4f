"""Implementation of `gpus` and `gpus --reclaim`."""
