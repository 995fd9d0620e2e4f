"""Displayed severities; labels, keys and settings keep the name."""

_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """An unknown severity stays as it is."""
    return _WORDS.get(severity, severity)
