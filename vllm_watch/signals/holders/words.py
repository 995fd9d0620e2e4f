"""Durations and sizes as evidence says them."""


def seconds(value: float) -> str:
    """A duration in its two largest units: "3 d 4 h", "12 min", "45 s"."""
    whole = max(0, int(value))
    if whole < 120:  # noqa: PLR2004 - below two minutes seconds say more
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:  # noqa: PLR2004 - and below two hours minutes
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:  # noqa: PLR2004 - and below two days hours
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def size(value: float | None) -> str:
    """Bytes in GiB, small ones in MiB."""
    if value is None:
        return "unknown"
    if abs(value) < 2**30:
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 2**30:.1f} GiB"
