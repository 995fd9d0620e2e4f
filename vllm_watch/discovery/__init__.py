"""Find targets: configured ones, and those in files, on this host and in a cluster."""
