"""Displayed severities; labels, keys and settings keep the name."""

_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """Return critical, warning or info; an unknown severity unchanged."""
    return _WORDS.get(severity, severity)
