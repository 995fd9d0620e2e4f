"""What watches: one target, one host, and the loops that look at them."""
