"""Format durations."""

_SECONDS_BELOW = 90.0
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def in_words(seconds: float) -> str:
    """Return a text such as "88 s" or "1 h 57 min", as on the status page."""
    if seconds < _SECONDS_BELOW:
        return f"{seconds:.0f} s"
    rest, found = round(seconds), []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        found.append(f"{count} {unit}" if count else "")
    first = next(index for index, each in enumerate(found) if each)
    return " ".join(filter(None, found[first : first + 2]))
