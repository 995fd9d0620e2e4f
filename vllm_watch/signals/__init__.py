"""Samples over time: windows, rates, quantiles, states. Pure: time comes with the data."""
