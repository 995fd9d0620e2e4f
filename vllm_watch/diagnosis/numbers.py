"""How numbers stand in messages, as pieces of patterns: whatever fits them can be reckoned with.

Longer ones are no sizes of anything: they come from lines that were cut, doubled or made up, and would
become infinite, overflow, or be refused by `int()`, which takes 4,300 digits at most.
"""

DECIMAL = r"(?<![\d.])\d{1,12}(?:\.\d{1,12})?(?![\d.])"
"""As in "14.99 GiB". `float()` takes it."""

WHOLE = r"(?<!\d)\d{1,12}(?!\d)"
"""As in "32768 tokens". `int()` takes it."""

GROUPED = r"(?<![\d,])\d[\d,]{0,15}(?![\d,])"
"""As in "32,768 tokens", for `whole`."""


def whole(text: str) -> int:
    """What `GROUPED` found."""
    return int(text.replace(",", ""))
