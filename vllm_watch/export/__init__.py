"""Everything that only shows: /metrics, the HTTP API and the status page. Nothing here changes the world."""
