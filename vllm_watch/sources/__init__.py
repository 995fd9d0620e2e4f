"""Inputs: read engines, GPUs and files and turn them into samples. Nothing is judged here."""
