"""Format counts, durations and sizes."""


def requests(count: float) -> str:
    """Return "1 request" or "3 requests"."""
    return f"{count:.0f} request{'' if round(count) == 1 else 's'}"


def cores(count: float) -> str:
    """Return "1 CPU core" or "2.5 CPU cores"."""
    shown = f"{count:.1f}"
    return "1 CPU core" if shown == "1.0" else f"{shown} CPU cores"


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


def seconds(value: float) -> str:
    """Return a text such as "3 d 4 h", "12 min" or "45 s"."""
    whole = max(0, int(value))
    if whole < 120:  # noqa: PLR2004
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:  # noqa: PLR2004
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:  # noqa: PLR2004
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def size(value: float | None) -> str:
    """Return a text in GiB or MiB."""
    if value is None:
        return "unknown"
    if abs(value) < 2**30:
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 2**30:.1f} GiB"
