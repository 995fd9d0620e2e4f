"""Virtual time for a whole daemon: an event loop that skips what nobody does anything in.

The daemon, the lab and asyncio read one clock, which stands still while anything runs (threads that write
to a disk included) and jumps to the next timer when nothing does. So a day passes in a minute, in the same
order as a real one.
"""

import asyncio
import datetime as real
import selectors
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from apscheduler.executors import base as executors
from apscheduler.schedulers import base as schedulers

THREAD_SECONDS = 0.02
"""Real time; how long a thread that works for us is waited for before it is looked at again."""


class Clock:
    """Seconds since the soak began, and the Unix time of that moment."""

    def __init__(self, epoch: float) -> None:
        self.epoch = epoch
        self.t = 0.0

    def unix(self) -> float:
        """What time.time() says."""
        return self.epoch + self.t

    def monotonic(self) -> float:
        """What time.monotonic() says; not 0, as on no real machine."""
        return 1000.0 + self.t


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    """Sockets and threads are waited for in real time, timers are jumped to."""

    clock: Clock
    busy: Callable[[], bool]

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready; where nothing is, let time pass."""
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        if timeout is None or self.busy():
            return super().select(THREAD_SECONDS)
        self.clock.t += timeout
        return []


class Loop(asyncio.SelectorEventLoop):
    """Knows what its threads have in hand; `working` are further ones that may be at work."""

    def __init__(self, clock: Clock) -> None:
        self.working: list[Callable[[], bool]] = []
        self._in_hand = 0
        selector = _Selector()
        selector.clock, selector.busy = clock, self.busy
        super().__init__(selector)

    def busy(self) -> bool:
        """Does any thread work for us?"""
        return self._in_hand > 0 or any(each() for each in self.working)

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> Any:
        """Count what is in hand."""
        future = super().run_in_executor(executor, func, *args)
        self._in_hand += 1
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        self._in_hand -= 1


@contextmanager
def virtual(clock: Clock) -> Iterator[None]:
    """Let everything in this process read the clock. Not for two soaks at once in one process."""

    class Now(real.datetime):
        """The scheduler's datetime."""

        @classmethod
        def now(cls, tz: real.tzinfo | None = None) -> "Now":
            return cls.fromtimestamp(clock.unix(), tz)

    kept = time.time, time.monotonic, time.clock_gettime
    time.time, time.monotonic = clock.unix, clock.monotonic
    time.clock_gettime = lambda _: clock.monotonic()  # the lock's, by which its hour passes
    schedulers.datetime = executors.datetime = Now
    try:
        yield
    finally:
        time.time, time.monotonic, time.clock_gettime = kept
        schedulers.datetime = executors.datetime = real.datetime
