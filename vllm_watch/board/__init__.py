"""The latest results, written once per scrape and read by everything else."""
