"""The latest results, written once per scrape, read by everything else."""
