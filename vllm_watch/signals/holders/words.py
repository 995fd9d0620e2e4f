"""Formats durations and sizes for evidence."""


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
