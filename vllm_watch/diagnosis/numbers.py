"""Patterns of numbers in messages. They limit the digits, because damaged lines contain numbers too long to convert."""

DECIMAL = r"(?<![\d.])\d{1,12}(?:\.\d{1,12})?(?![\d.])"
"""As in "14.99 GiB"."""

WHOLE = r"(?<!\d)\d{1,12}(?!\d)"
"""As in "32768 tokens"."""

GROUPED = r"(?<![\d,])\d[\d,]{0,15}(?![\d,])"
"""As in "32,768 tokens", for `whole`."""


def whole(text: str) -> int:
    """Convert a match of `GROUPED`."""
    return int(text.replace(",", ""))
