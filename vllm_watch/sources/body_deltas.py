"""A run of texts as one text that holds the first in full and of the others only what changed.

From one scrape to the next a /metrics body keeps its lines and most of its values. Keeping only the
new values makes ten minutes small enough for memory, and costs less than compressing the bodies. It
is exact for any text: nothing here knows the metrics format, except that the part of a line that
changes is most likely its last word.

A record is a head line, a line that says what follows, and that:
    -           nothing: there was no text
    =           nothing: the text is the one before
    N           a text of N lines
    ~flags      a character per line of the text before, 1 where it changed; then for each of those
                its new last word, or the new line after a space
    @           for each line of the text before its last word, changed or not; nothing for a comment

Of a busy engine most values change at each look: to find those that did not takes longer than to keep all.
"""

import sys
from collections.abc import Iterator
from itertools import compress, count, islice
from operator import add, ne
from typing import NamedTuple

UNCOMPARED = 15
"""Records written without a look at what changed, after one of which more than half had."""


class Lines(NamedTuple):
    """A text taken apart by whoever has read it: each line is a head and a tail.

    Texts of one layout have the very same `heads`. A head whose tail is not empty ends with a space, and
    no tail has one.
    """

    heads: tuple[str, ...]
    tails: str  # line by line
    words: list[str] | None = None  # the same, one by one, where they are still at hand

    @property
    def text(self) -> str:
        """The text itself."""
        return "\n".join(map(add, self.heads, self.tails.split("\n")))


class Encoder:
    """Turns texts into records; remembers the last text, of which the layout costs nothing more."""

    def __init__(self) -> None:
        self._previous: str | Lines | None = None
        self._uncompared = 0  # so many records more

    @property
    def memory_bytes(self) -> int:
        """What the last text takes; 0: there is none, and the next one is written in full."""
        previous = self._previous
        if previous is None:
            return 0
        return sys.getsizeof(previous.tails if isinstance(previous, Lines) else previous)

    def reset(self) -> None:
        """Write the next text in full."""
        self._previous = None

    def encode(self, head: str, text: str | None, lines: Lines | None = None) -> str:
        """Return the record; `head` is a line that is not empty, `lines` is the text where it is known so."""
        if text is None:
            return f"{head}\n-\n"
        # The words would take six times the room of the tails.
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
        """The same record, where a line can only have changed in its last word."""
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
        """Yield each head with the lines of its text; the list changes with the next record."""
        rows = iter(records.split("\n"))
        for head in rows:
            if not head:  # what stands after the last line's end
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
    """Is it no comment and not blank?"""
    return line[:1] not in ("", "#", " ", "\t", "\r")


def _changed(old: str, change: str) -> str:
    if change.startswith(" "):
        return change[1:]
    return old[: old.rfind(" ") + 1] + change
