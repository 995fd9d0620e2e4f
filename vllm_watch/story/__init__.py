"""Every text about a kind of incident and its causes: one module per kind, pure data."""
