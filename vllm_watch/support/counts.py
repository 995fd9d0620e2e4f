"""Format counts."""


def requests(count: float) -> str:
    """Return "1 request" or "3 requests"."""
    return f"{count:.0f} request{'' if round(count) == 1 else 's'}"
