"""Virtual time: what is to happen when, to whom; and people's machines, which pause, fall out and start again.

What a watcher does is a generator that yields how long it waits. A pause holds all that its watcher does;
a crash ends it.
"""

import heapq
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from vllm_watch.restart.locks.record import Now, Record, Sightings

EPOCH = 1_800_000_000.0
BOOT_SECONDS = 1e6  # hosts that share nothing but the time: each counts from a moment of its own

Doing = Generator[float, None, None]


@dataclass
class Watcher:
    """One process, its clocks and its troubles."""

    name: str
    skew_s: float  # its wall clock against true time
    boot_s: float
    sightings: Sightings = field(default_factory=Sightings)
    left: dict[str, bool] = field(default_factory=dict)  # attempts whose slot nobody uses: used?
    life: int = 0
    paused_until: float = 0.0
    cut_until: float = 0.0
    down_until: float = 0.0

    def now(self, t: float) -> Now:
        return Now(self.boot_s + t, EPOCH + t + self.skew_s)


class Clockwork:
    """The events in order of time."""

    def __init__(self, seed: int) -> None:
        self.t = 0.0
        self.chance = Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def at(self, t: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (t, next(self._number), what))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.t, _, what = heapq.heappop(self._events)
            what()

    def go(self, watcher: Watcher, doing: Doing) -> None:
        """Have a watcher do this from now on, as long as it lives."""
        self._step(watcher, watcher.life, doing)

    def _step(self, watcher: Watcher, life: int, doing: Doing) -> None:
        if watcher.life != life:
            doing.close()
            return
        if watcher.paused_until > self.t:
            self.at(watcher.paused_until, lambda: self._step(watcher, life, doing))
            return
        try:
            wait = next(doing)
        except StopIteration:
            return
        self.at(self.t + wait, lambda: self._step(watcher, life, doing))


@dataclass
class Store:
    """What the API server keeps: one object, replaced only by who has seen its newest version."""

    record: Record = field(default_factory=Record)
    version: int = 0
    conflicts: int = 0

    def replace(self, version: int, record: Record) -> bool:
        if version != self.version:
            self.conflicts += 1
            return False
        self.record, self.version = record, version + 1
        return True
