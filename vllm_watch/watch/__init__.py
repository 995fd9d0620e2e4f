"""The objects that judge targets and hosts, and the loops that drive them."""
