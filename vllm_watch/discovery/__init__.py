"""Finds targets: configured, in files, on this host, in a cluster."""
