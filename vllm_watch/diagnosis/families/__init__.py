"""What can go wrong, one table per family: failure classes with their fixes, and the messages that tell of them."""
