"""The judges of targets and hosts, and the loops that drive them."""
