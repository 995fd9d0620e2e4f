"""What every part may use and none of them is about."""
