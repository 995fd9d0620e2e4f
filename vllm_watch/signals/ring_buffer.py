"""A ring buffer of float rows, allocated once."""

from array import array
from collections.abc import Iterator, Sequence


class RingBuffer:
    """The last `length` rows of `width` floats."""

    __slots__ = ("_added", "_length", "_values", "_width")

    def __init__(self, length: int, width: int) -> None:
        self._length, self._width, self._added = length, width, 0
        self._values = array("d", bytes(8 * length * width))

    def __len__(self) -> int:
        return min(self._added, self._length)

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        return map(self._row, range(self._added - len(self), self._added))

    def __reversed__(self) -> Iterator[tuple[float, ...]]:
        return map(self._row, range(self._added - 1, self._added - len(self) - 1, -1))

    def append(self, row: Sequence[float]) -> None:
        if len(row) != self._width:
            raise ValueError(f"{len(row)} numbers for a row of {self._width}")
        at = self._added % self._length * self._width
        self._values[at : at + self._width] = array("d", row)
        self._added += 1

    def note(self, row: Sequence[float], seconds: float) -> None:
        """Append the row unless the last one is less than `seconds` older. Rows begin with their time."""
        if not self._added or row[0] - self._row(self._added - 1)[0] >= seconds:
            self.append(row)

    def _row(self, number: int) -> tuple[float, ...]:
        at = number % self._length * self._width
        return tuple(self._values[at : at + self._width])
