"""Detect the terminal's width and colour support."""

import os
import shutil
from typing import TextIO

_COLUMNS, _LINES = 100, 24  # without a terminal


def columns(low: int = 1, high: int = 10_000, *, elsewhere: int = _COLUMNS) -> int:
    """Return the terminal's width, or `elsewhere` for a pipe."""
    return min(max(shutil.get_terminal_size((elsewhere, _LINES)).columns, low), high)


def takes_colours(stream: TextIO) -> bool:
    """Return True for a terminal, unless NO_COLOR is set."""
    return stream.isatty() and "NO_COLOR" not in os.environ
