"""What the samples mean over time: windows, rates, quantiles, states. Pure: time comes in with the data."""
