"""Read-only views: /metrics, the HTTP API and the status page."""
