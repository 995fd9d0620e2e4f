"""How a severity is told to people; labels, keys and settings keep its name."""

_WORDS = {"page": "critical", "ticket": "warning"}


def severity_word(severity: str) -> str:
    """What people read: critical, warning or info; a severity that is not known as it is called."""
    return _WORDS.get(severity, severity)
