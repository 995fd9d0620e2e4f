"""Encode a sequence of texts losslessly: the first text, then only changes.

A /metrics body keeps its lines and most values from scrape to scrape.

A record is a head line, a line with its kind, and its data:
    -           no text, no data
    =           the same text as before, no data
    N           a text of N lines
    ~flags      one character per line of the previous text, U+0001 if that line changed; the data
                has one line per changed line: its new last word, or a space and the whole new line
    @           the last word of every line; empty for a comment
"""

import sys
from collections.abc import Iterator
from itertools import compress, count, islice
from operator import add, ne
from typing import NamedTuple

UNCOMPARED = 15
"""After a text in which most values changed, this many texts are stored without comparison.
Comparing them would take longer than it saves."""


class Lines(NamedTuple):
    """A text in which each line is split into a head and a tail (the last word). Texts of one layout share one `heads` object."""

    heads: tuple[str, ...]
    tails: str  # joined by newlines
    words: list[str] | None = None

    @property
    def text(self) -> str:
        return "\n".join(map(add, self.heads, self.tails.split("\n")))


class Encoder:
    """Turns texts into records."""

    def __init__(self) -> None:
        self._previous: str | Lines | None = None
        self._uncompared = 0

    @property
    def memory_bytes(self) -> int:
        previous = self._previous
        if previous is None:
            return 0
        return sys.getsizeof(previous.tails if isinstance(previous, Lines) else previous)

    def reset(self) -> None:
        self._previous = None

    def encode(self, head: str, text: str | None, lines: Lines | None = None) -> str:
        if text is None:
            return f"{head}\n-\n"
        # Keeping the words would take six times the memory of the tails.
        previous, self._previous = self._previous, text if lines is None else Lines(*lines[:2])
        if isinstance(previous, Lines):
            if lines is not None and lines.heads is previous.heads:
                return self._of_tails(head, previous.tails, lines)
            previous = previous.text
        if previous is None:
            return _whole(head, text)
        if previous == text:
            return f"{head}\n=\n"
        old, new = previous.split("\n"), text.split("\n")
        if len(old) != len(new):
            return _whole(head, text)
        flags = bytes(map(ne, old, new))
        changes = map(_change, compress(old, flags), compress(new, flags))
        return "\n".join((head, "~" + flags.decode("latin-1"), *changes, ""))

    def _of_tails(self, head: str, before: str, now: Lines) -> str:
        if before == now.tails:
            return f"{head}\n=\n"
        if self._uncompared:
            self._uncompared -= 1
            return f"{head}\n@\n{now.tails}\n"
        old, new = before.split("\n"), now.words or now.tails.split("\n")
        flags = bytes(map(ne, old, new))
        if 2 * sum(flags) > len(new) - new.count(""):
            self._uncompared = UNCOMPARED
        return "\n".join((head, "~" + flags.decode("latin-1"), *compress(new, flags), ""))


def _whole(head: str, text: str) -> str:
    lines = text.count("\n") + 1
    return f"{head}\n{lines}\n{text}\n"


def _change(old: str, new: str) -> str:
    word = new.rfind(" ") + 1
    if old.rfind(" ") + 1 == word and old.startswith(new[:word]):
        return new[word:]
    return " " + new


class Decoder:
    """Turns records back into texts."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def decode(self, records: str) -> Iterator[tuple[str, list[str] | None]]:
        """Yield the head line of each record, and the lines of its text or None. The next record changes the list of lines."""
        rows = iter(records.split("\n"))
        for head in rows:
            if not head:
                return
            kind = next(rows)
            if kind == "-":
                yield head, None
                continue
            if kind.startswith("~"):
                for index in compress(count(), kind[1:].encode("latin-1")):
                    self._lines[index] = _changed(self._lines[index], next(rows))
            elif kind == "@":
                self._lines = [
                    _changed(line, tail) if tail or _has_tail(line) else line
                    for line, tail in zip(self._lines, rows, strict=False)
                ]
            elif kind != "=":
                self._lines = list(islice(rows, int(kind)))
            yield head, self._lines


def _has_tail(line: str) -> bool:
    return line[:1] not in ("", "#", " ", "\t", "\r")


def _changed(old: str, change: str) -> str:
    if change.startswith(" "):
        return change[1:]
    return old[: old.rfind(" ") + 1] + change
