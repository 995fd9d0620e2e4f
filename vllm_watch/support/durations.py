"""Format durations."""

_MINUTES_FROM_SECONDS = 90.0


def in_words(seconds: float) -> str:
    """Return seconds, minutes from a minute and a half, or hours: "88 s", "2 min", "1 h 58 min"."""
    if seconds < _MINUTES_FROM_SECONDS:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60.0), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)
