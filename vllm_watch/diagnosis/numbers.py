"""Patterns of numbers. The digits are limited, because damaged lines contain numbers too long to convert."""

DECIMAL = r"(?<![\d.])\d{1,12}(?:\.\d{1,12})?(?![\d.])"
"""Matches 14.99 in "14.99 GiB"."""

WHOLE = r"(?<!\d)\d{1,12}(?!\d)"
"""Matches 32768 in "32768 tokens"."""

GROUPED = r"(?<![\d,])\d[\d,]{0,15}(?![\d,])"
"""Matches 32,768 in "32,768 tokens"."""


def whole(text: str) -> int:
    """Convert a match of `GROUPED` to an integer."""
    return int(text.replace(",", ""))
