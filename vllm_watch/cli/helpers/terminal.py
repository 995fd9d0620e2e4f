"""The terminal: its width and colours, and a progress line for work that takes over two seconds."""

import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

_COLUMNS, _LINES = 100, 24  # without a terminal


def columns(high: int = 120, *, low: int = 60, elsewhere: int = _COLUMNS) -> int:
    """Return the terminal's width, or `elsewhere` for a pipe. `low` and `high` are its limits."""
    return min(max(shutil.get_terminal_size((elsewhere, _LINES)).columns, low), high)


def takes_colours(stream: TextIO) -> bool:
    """Return True for a terminal, unless NO_COLOR is set."""
    return stream.isatty() and "NO_COLOR" not in os.environ


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap the text, but not at hyphens. `first` and `rest` begin the lines."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


BOLD, DIM, YELLOW, RED = "1", "2", "33", "1;31"
Paint = Callable[[str, str], str]


def painter(stream: TextIO) -> Paint:
    """Return a function of a style and a text. It styles the text only for a terminal."""
    coloured = takes_colours(stream)
    return lambda style, text: f"\033[{style}m{text}\033[0m" if coloured and style else text


AFTER_SECONDS = 2.0
_EVERY_SECONDS = 0.25
_CLEAR = "\r\033[K"


class Progress:
    """Overwrites one line. Close it before other output."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + AFTER_SECONDS
        self._shown = False
        self._on = sys.stderr.isatty()

    def tell(self, text: str) -> None:
        now_s = time.monotonic()
        if not self._on or now_s < self._due_s:
            return
        self._due_s, self._shown = now_s + _EVERY_SECONDS, True
        sys.stderr.write(_CLEAR + text)
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        self._on = self._shown = False


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show `text` while a slow body runs."""
    progress = Progress()
    timer = threading.Timer(AFTER_SECONDS, progress.tell, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        progress.close()
