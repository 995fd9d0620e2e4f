"""The latest results, which each scrape writes once and everything else reads."""
