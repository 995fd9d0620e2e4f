"""What a Prometheus has stored, judged: replay --prometheus."""
