"""Judges holders of GPU memory, without I/O."""
