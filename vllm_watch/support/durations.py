"""Durations in words."""

_MINUTES_FROM_SECONDS = 90.0


def in_words(seconds: float) -> str:
    """In seconds, or from a minute and a half on in minutes."""
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_SECONDS else f"{seconds / 60.0:.0f} min"
