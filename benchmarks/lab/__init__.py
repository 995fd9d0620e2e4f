"""What only benchmarks and tests need of the lab: virtual time, healthy lives, and how a watcher comes to see them."""
