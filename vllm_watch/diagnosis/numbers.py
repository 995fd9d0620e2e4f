"""Patterns of numbers in messages; every match can be converted safely.

Longer numbers come from truncated, doubled or invented lines and would become infinite, overflow, or be
refused by `int()`, which takes at most 4,300 digits.
"""

DECIMAL = r"(?<![\d.])\d{1,12}(?:\.\d{1,12})?(?![\d.])"
"""As in "14.99 GiB". `float()` takes it."""

WHOLE = r"(?<!\d)\d{1,12}(?!\d)"
"""As in "32768 tokens". `int()` takes it."""

GROUPED = r"(?<![\d,])\d[\d,]{0,15}(?![\d,])"
"""As in "32,768 tokens", for `whole`."""


def whole(text: str) -> int:
    """Convert a match of `GROUPED`."""
    return int(text.replace(",", ""))
