"""Everything that changes the world: may we act, the act itself, and whether it helped."""
