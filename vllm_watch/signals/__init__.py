"""Samples over time: windows, rates, quantiles, states. Pure."""
