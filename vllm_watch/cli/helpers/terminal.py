"""What the commands ask of the terminal: how wide it is, and whether it takes colours."""

import os
import shutil
from typing import TextIO

_COLUMNS, _LINES = 100, 24  # where the output is no terminal


def columns(low: int = 1, high: int = 10_000, *, elsewhere: int = _COLUMNS) -> int:
    """Its width, or `elsewhere` in a pipe (COLUMNS says otherwise), within bounds between which a text can be read."""
    return min(max(shutil.get_terminal_size((elsewhere, _LINES)).columns, low), high)


def takes_colours(stream: TextIO) -> bool:
    """Is it a terminal whose user has not set NO_COLOR?"""
    return stream.isatty() and "NO_COLOR" not in os.environ
