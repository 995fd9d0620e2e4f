"""What `preflight` gathers and prints."""
