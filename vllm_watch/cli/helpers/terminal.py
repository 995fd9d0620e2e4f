"""The terminal's width and colour support."""

import os
import shutil
from typing import TextIO

_COLUMNS, _LINES = 100, 24  # without a terminal


def columns(low: int = 1, high: int = 10_000, *, elsewhere: int = _COLUMNS) -> int:
    """`elsewhere`: width in a pipe (COLUMNS overrides)."""
    return min(max(shutil.get_terminal_size((elsewhere, _LINES)).columns, low), high)


def takes_colours(stream: TextIO) -> bool:
    """NO_COLOR disables them."""
    return stream.isatty() and "NO_COLOR" not in os.environ
