"""Binary units, and division that rounds up."""

MIB = 1 << 20
GIB = 1 << 30


def ceil_div(amount: int, piece: int) -> int:
    """Return the number of pieces that hold the amount."""
    return -(-amount // piece)


def round_up(amount: int, multiple: int) -> int:
    """Return the amount, rounded up to a multiple."""
    return ceil_div(amount, multiple) * multiple
