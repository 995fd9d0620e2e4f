"""Every word about a kind of incident and its causes, in one place: a module per kind, pure data."""
