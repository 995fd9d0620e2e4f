"""The judges of targets and hosts, and their loops."""
