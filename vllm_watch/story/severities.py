"""Names severities for display."""

_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """Return the displayed word; an unknown severity stays as it is."""
    return _WORDS.get(severity, severity)
