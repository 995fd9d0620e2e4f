"""Read data from engines, GPUs and files, and turn the data into samples. Nothing is judged here."""
