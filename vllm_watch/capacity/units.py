"""Sizes: binary units, and division that rounds up as allocators do."""

MIB = 1 << 20
GIB = 1 << 30


def ceil_div(amount: int, piece: int) -> int:
    """How many pieces hold the amount."""
    return -(-amount // piece)


def round_up(amount: int, multiple: int) -> int:
    """The amount, rounded up to a multiple."""
    return ceil_div(amount, multiple) * multiple
