"""The judges of one target and of one host, and their loops."""
