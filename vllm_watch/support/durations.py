"""Format durations."""

_MINUTES_FROM_SECONDS = 90.0


def in_words(seconds: float) -> str:
    """Return seconds, or minutes from 90 s on."""
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_SECONDS else f"{seconds / 60.0:.0f} min"
