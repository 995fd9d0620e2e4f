"""Format counts."""


def requests(count: float) -> str:
    """Return "1 request" or "3 requests"."""
    return f"{count:.0f} request{'' if round(count) == 1 else 's'}"


def cores(count: float) -> str:
    """Return "1 CPU core" or "2.5 CPU cores"."""
    shown = f"{count:.1f}"
    return "1 CPU core" if shown == "1.0" else f"{shown} CPU cores"
