"""The judges of one target and of one host, and the loops that poll them."""
