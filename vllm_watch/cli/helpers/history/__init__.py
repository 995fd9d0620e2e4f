"""replay --prometheus: judge a Prometheus' stored metrics."""
