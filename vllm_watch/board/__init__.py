"""The latest results of every watched thing, written once per scrape and read by export, restarts and notifications."""
