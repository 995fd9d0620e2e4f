"""What `capacity` reads and prints."""
