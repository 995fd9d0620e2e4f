"""Inputs and output of `capacity`."""
