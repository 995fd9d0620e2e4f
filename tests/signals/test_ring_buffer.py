"""The last rows of a few numbers, in memory that does not grow."""

from collections import deque
from itertools import pairwise
from sys import getsizeof

import pytest

from vllm_watch.signals.pages import RingBuffer


def test_it_is_what_a_bounded_deque_is():
    """In order, from either end, before it is full and after."""
    rows, known = RingBuffer(5, 2), deque(maxlen=5)
    for number in range(13):
        rows.append((number, -number))
        known.append((number, -number))
        assert (list(rows), list(reversed(rows)), len(rows)) == (
            list(known),
            list(reversed(known)),
            len(known),
        )


def test_a_row_is_noted_when_the_last_one_is_old_enough():
    rows = RingBuffer(3, 2)
    for at_s in (0.0, 19.0, 20.0, 39.0, 45.0, 65.0, 85.0):
        rows.note((at_s, 1.0), 20.0)
    assert [at_s for at_s, _ in rows] == [45.0, 65.0, 85.0]


def test_its_memory_is_taken_at_once():
    """An hour of rows later it is the same."""
    rows = RingBuffer(180, 4)
    sizes = [getsizeof(rows._values)]
    for number in range(400):
        rows.append((number, 0.5, 1e6, 1.0))
        sizes.append(getsizeof(rows._values))
    assert all(a == b for a, b in pairwise(sizes))


def test_a_row_of_another_width_is_refused():
    """And changes nothing."""
    rows = RingBuffer(3, 2)
    with pytest.raises(ValueError, match="3 numbers for a row of 2"):
        rows.append((1, 2, 3))
    assert list(rows) == []
