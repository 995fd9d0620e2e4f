"""The latest results, written once per scrape, read by all else."""
