"""Virtual time: an event loop that never waits, the clocks that it moves, and a state folder without a thread.

Whatever waits in the loop costs nothing, and the same story runs the same way each time. The code under test reads these
clocks in place of `time`; its files, its database and its locks are real.
"""

import asyncio
import heapq
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any
from unittest.mock import patch

from vllm_watch.errors import StateError
from vllm_watch.state.worker import Work, Worker, _Job

BEGIN_T = 1_790_000_000.0  # Mon 2026-09-21 14:13:20 UTC


class Clock(ModuleType):
    """Takes the place of the module `time`: moved by the loop, and by whoever sets it."""

    def __init__(self) -> None:
        super().__init__("time")
        self.reset()

    def reset(self) -> None:
        self.monotonic_s = 1000.0
        self.ahead_s = 0.0  # by which the clock on the wall was set
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        return self.monotonic_s

    def time(self) -> float:
        return BEGIN_T + self.monotonic_s + self.ahead_s

    def clock_gettime(self, _: int) -> float:
        return self.monotonic_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        """Have something happen in the world, whoever runs then."""
        heapq.heappush(self._events, (self.monotonic_s + seconds, next(self._number), happens))

    def advance(self, seconds: float) -> None:
        """Let time pass, and happen what falls due in it; stop there, so that the loop sees each."""
        until_s = self.monotonic_s + seconds
        if self._events and self._events[0][0] <= until_s:
            until_s, _, happens = heapq.heappop(self._events)
            self.monotonic_s = max(self.monotonic_s, until_s)
            happens()
        else:
            self.monotonic_s = until_s

    def pass_unseen(self, seconds: float) -> None:
        """Let time pass in which the watcher does not run."""
        until_s = self.monotonic_s + seconds
        while until_s > self.monotonic_s:
            self.advance(until_s - self.monotonic_s)


CLOCK = Clock()


class Loop(asyncio.BaseEventLoop):
    """Of one process; time passes whenever it has nothing to do. One that was killed runs nothing any more."""

    def __init__(self) -> None:
        super().__init__()
        self.killed = False
        self._selector = self
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return CLOCK.monotonic_s

    def select(self, timeout: float | None) -> list[Any]:
        assert timeout is not None, "everything waits for something that will never come"
        if timeout > 0:
            CLOCK.advance(timeout)
        return []

    def _process_events(self, _: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, _: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        """In place of a thread: at once."""
        self.check()
        future = self.create_future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future

    def check(self) -> None:
        """Nothing that a killed process would have done next reaches the world."""
        if self.killed:
            raise asyncio.CancelledError

    def kill(self) -> None:
        """From now on this process does nothing; the loop ends before its next round."""
        self.killed = True
        self.stop()

    def bury(self) -> None:
        """Unwind what a killed process, or one that has ended, left in the loop."""
        self.killed = True
        for _ in range(20):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.call_soon(self.stop)
            self.run_forever()
        assert not asyncio.all_tasks(self)
        self.close()


class InlineWorker(Worker):
    """The real one, whose work is done where it is asked for."""

    full = False  # is the disk?

    async def do(self, work: Any, *, seconds: float, writes: bool = True) -> Any:
        loop = asyncio.get_running_loop()
        loop.check()  # type: ignore[attr-defined]
        self._loop = loop
        await asyncio.sleep(0)
        loop.check()  # type: ignore[attr-defined]
        if writes and self.full:
            self._failing = "the disk is full"
            raise StateError(self._failing, "make room")
        job = _Job(work, writes)
        self._run_job(job)
        return job.done.result()

    def put(self, key: Any, write: Work, *, learnt: bool = False) -> None:
        loop = asyncio.get_running_loop()
        (self._learnt if learnt else self._rows)[key] = write
        loop.call_soon(self._soon, loop)

    def _soon(self, loop: Loop) -> None:
        if not loop.killed and not self.full and self._write_rows(learnt=True):
            self._succeeded()

    async def close(self) -> None:
        if not self.full:
            self._write_rows(learnt=True)
        self.connection.release()


@contextmanager
def virtual_time() -> Iterator[None]:
    """Within, vllm_watch reads CLOCK. What it imports later reads the real one."""
    modules = [
        module for name, module in sys.modules.items()
        if name.startswith("vllm_watch.") and getattr(module, "time", None) is time
    ]  # fmt: skip
    patches = [patch.object(module, "time", CLOCK) for module in modules]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()
