"""Which targets there are: written out, in files, on this host, in a cluster."""
