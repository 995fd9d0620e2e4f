"""Finds the part of one engine's KV cache that no running request can hold.

Pages leak if usage grows but the tokens in flight do not. Tokens in flight are the prompt and output tokens of
unfinished requests. Only changes of their number are used, because aborted requests are never
subtracted, and shared prefixes are counted twice. Source: vLLM's v1/metrics/stats.py.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import inf, sqrt
from typing import Any, ClassVar, NamedTuple

from vllm_watch.signals import stored
from vllm_watch.signals.blocks import Block
from vllm_watch.signals.scales import (
    FIVE_MINUTES_SECONDS,
    KEPT_MAX,
    MANY,
    MOMENT_SECONDS,
    MOST_SHARE,
    PART_SHARE,
    SMALL_SHARE,
)


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


ENTRIES = 180
"""At one entry in five minutes, the history covers half a day. Reported leaks fill the cache in three
to eight hours."""


class Entry(NamedTuple):
    """KV usage and tokens at one moment."""

    at_s: float
    usage: float
    tokens: float  # in flight; only changes are meaningful
    well: bool

    def level(self, share: float) -> float:
        return self.usage - share * self.tokens


class Pages(stored.Kept):
    """Follows one engine."""

    KEPT: ClassVar[stored.Fields] = {
        "idle_tokens": stored.number_or_none,
        "idle_lost": stored.number,
        "capacity": stored.number_or_none,
        "coarse": lambda entries: _ring(map(_entry, entries)),
        "recent": lambda entries: deque(map(_entry, entries), KEPT_MAX),
        "moves": partial(stored.numbers, count=2),
        "zeros": lambda zeros: tuple(map(stored.pair, zeros)),
    }
    LATER = ("idle_tokens", "idle_lost", "coarse")

    def __init__(self) -> None:
        self._capacity: float | None = None
        self._awaited = 0.0
        self._idle_tokens: float | None = None  # `Entry.tokens` of the idle engine
        self._idle = [0.0, 1.0]  # seconds and minimum usage without requests
        self.idle_lost = 0.0
        self._coarse = _ring(())
        self._recent: deque[Entry] = deque(maxlen=KEPT_MAX)
        self._moves = [0.0, 0.0]  # sums of squared changes of usage and of tokens in flight
        self._zeros: tuple[tuple[float, float], ...] = ()  # (cache share of a token, healthy level)

    def note(
        self, block: Block, capacity_tokens: float | None, *, well: bool, awaited: float = 0.0
    ) -> None:
        self._awaited = awaited
        self._note_idle(block)
        if block.tokens_in_flight is None or block.kv_usage_end is None:
            return
        self._capacity = capacity_tokens
        entry = Entry(block.at_s, block.kv_usage_end, block.tokens_in_flight, well)
        if well and self._recent and self._recent[-1].well:
            before = self._recent[-1]
            self._moves[0] += (entry.usage - before.usage) ** 2
            self._moves[1] += (entry.tokens - before.tokens) ** 2
        if well:
            self._zeros = ()
        self._recent.append(entry)
        # The coarse history covers half a day. Reported leaks fill the cache in three to
        # eight hours.
        self._coarse.note(entry, FIVE_MINUTES_SECONDS)

    def _note_idle(self, block: Block) -> None:
        if block.running or block.waiting or block.generated or block.kv_usage_end is None:
            self._idle = [0.0, 1.0]
            return
        self._idle = [self._idle[0] + block.seconds, min(self._idle[1], block.kv_usage_end)]
        # The last requests' pages are free by then.
        if self._idle[0] >= MOMENT_SECONDS:
            self.idle_lost, self._idle_tokens = self._idle[1], block.tokens_in_flight

    def export_state(self) -> dict[str, Any]:
        return {**super().export_state(), "coarse": [list(entry) for entry in _rows(self._coarse)]}

    def unheld(self) -> float | None:
        """Return the share of the cache that no request holds, or None if unknown. The result is the smaller of two estimates."""
        zeros = self._learn_zeros()
        if not zeros or not self._recent:
            return None
        return min(self._recent[-1].level(share) - zero for share, zero in zeros) - self._awaited

    def rise_seconds(self) -> float | None:
        """Return the seconds in which the middle half of the loss appeared, or None without a loss.

        If the loss is older than the history, return the history's length.
        """
        now = self.unheld()
        if now is None or now <= 0.0:
            return None
        share, zero = min(self._zeros, key=lambda each: self._recent[-1].level(each[0]) - each[1])
        entries = list(self._entries())
        times: list[float] = []
        limits = [MOST_SHARE * now, PART_SHARE * now]
        later: tuple[float, float] | None = None
        for entry in reversed(entries):
            level = entry.level(share) - zero
            while limits and level <= limits[0]:
                times.append(_crossing(entry.at_s, level, later, limits.pop(0)))
            if not limits:
                return times[0] - times[1]
            later = entry.at_s, level
        return entries[-1].at_s - entries[0].at_s

    def _entries(self) -> Iterator[Entry]:
        first_s = self._recent[0].at_s if self._recent else inf
        yield from (each for each in _rows(self._coarse) if each.at_s < first_s)
        yield from self._recent

    def _learn_zeros(self) -> tuple[tuple[float, float], ...]:
        if self._zeros:
            return self._zeros
        well = [entry for entry in self._entries() if entry.well]
        # Fewer entries may be a single prefill.
        if len(well) < MANY:
            return ()
        shares = []
        if self._capacity:
            shares.append(1.0 / self._capacity)
        if self._moves[0] > 0.0 and self._moves[1] > 0.0:
            shares.append(sqrt(self._moves[0] / self._moves[1]))
        known = None not in (self._capacity, self._idle_tokens)
        idle = (self._idle_tokens or 0.0) if known else -inf
        self._zeros = tuple((share, min(_low(well, share), -share * idle)) for share in shares)
        return self._zeros


def _ring(entries: Iterable[Entry]) -> RingBuffer:
    ring = RingBuffer(ENTRIES, len(Entry._fields))
    for entry in entries:
        ring.append(entry)
    return ring


def _rows(history: RingBuffer) -> Iterator[Entry]:
    for at_s, usage, tokens, well in history:
        yield Entry(at_s, usage, tokens, bool(well))


def _entry(value: Any) -> Entry:
    at_s, usage, tokens = stored.numbers(value[:3], 3)
    return Entry(at_s, usage, tokens, stored.flag(value[3]))


def _low(entries: list[Entry], share: float) -> float:
    levels = sorted(entry.level(share) for entry in entries)
    # The healthy level is a low quantile, so that the beginning of a leak is visible.
    return levels[int(SMALL_SHARE * len(levels))]


def _crossing(at_s: float, level: float, later: tuple[float, float] | None, limit: float) -> float:
    if later is None or later[1] <= level:
        return at_s
    return at_s + (later[0] - at_s) * (limit - level) / (later[1] - level)


def none_prefilling(block: Block) -> bool:
    """Return True if nearly all running requests got a token in each step."""
    if not block.steps:
        return False
    return block.generated * block.seconds / block.steps >= MOST_SHARE * block.running
