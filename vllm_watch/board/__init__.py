"""The latest results, for all outputs."""
