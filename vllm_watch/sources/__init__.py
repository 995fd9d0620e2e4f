"""I/O in: everything that brings bytes from engines, GPUs and files, and turns them into samples; nothing is judged."""
