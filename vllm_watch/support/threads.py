"""Use threads for work that may hang.

`threading.Thread.start` is not used, because it would wait forever if the thread died for lack of
memory.
"""

import _thread
import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_one_computes = threading.Lock()

COMPUTED_SECONDS_MAX = 30.0
"""Seconds to wait for a result. The largest body takes one second, but a thread may die if memory
is short."""


def begin(work: Callable[[], None]) -> bool:
    """Run `work` in a thread that does not delay the exit. Return False if no thread can be started."""
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError):
        return False
    return True


async def compute(work: Callable[[], T]) -> T:
    """Run `work` in a thread, and return its result.

    Only one such thread works at a time, so that the event loop keeps its CPU. Raises MemoryError
    after a timeout.
    """

    def alone() -> T:
        with _one_computes:
            return work()

    try:
        return await run(alone, COMPUTED_SECONDS_MAX)
    except TimeoutError as error:
        raise MemoryError from error


async def run(work: Callable[[], T], seconds: float | None) -> T:
    """Run `work` in a thread, and return its result. Raises the errors of `work`, TimeoutError, or MemoryError if no thread starts."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(give: Callable[[Any], None], outcome: Any) -> None:
        if not done.done():
            give(outcome)

    def in_thread() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, work()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            outcome = done.set_exception, error.with_traceback(None)  # frames would keep memory
        with suppress(RuntimeError, MemoryError):  # the loop has ended, or memory is short
            loop.call_soon_threadsafe(end, *outcome)

    if not begin(in_thread):
        raise MemoryError
    async with asyncio.timeout(seconds):
        return await done
