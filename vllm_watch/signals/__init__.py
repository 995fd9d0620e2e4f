"""Windows, rates, quantiles and states of samples over time, without I/O."""
