"""Find targets: configured, in files, on this host and in a cluster."""
