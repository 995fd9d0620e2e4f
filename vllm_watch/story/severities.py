"""Translate severities into the displayed words."""

_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """Return the displayed word, or the severity itself if unknown."""
    return _WORDS.get(severity, severity)
