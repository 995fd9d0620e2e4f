"""What commands are made of."""
