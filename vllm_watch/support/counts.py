"""Counts in words."""


def requests(count: float) -> str:
    """As in "1 request" and "3 requests"."""
    return f"{count:.0f} request{'' if round(count) == 1 else 's'}"
