"""Run work that may hang in a thread. `threading.Thread.start` would wait forever if memory is short and the thread dies first."""

import _thread
import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_one_computes = threading.Lock()

COMPUTED_SECONDS_MAX = 30.0
"""A thread may die without a result; the largest body takes a second."""


def begin(work: Callable[[], None]) -> bool:
    """Return False if none can be started. The thread does not delay the exit."""
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError):
        return False
    return True


async def compute(work: Callable[[], T]) -> T:
    """Run `work` outside the event loop, one at a time, for the CPU's sake. Raises as `work` does, and MemoryError: no thread, or no result in time."""

    def alone() -> T:
        with _one_computes:
            return work()

    try:
        return await run(alone, COMPUTED_SECONDS_MAX)
    except TimeoutError as error:
        raise MemoryError from error


async def run(work: Callable[[], T], seconds: float) -> T:
    """Run `work` in a thread that may hang. Raises as `work` does, TimeoutError, and MemoryError: no thread."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type] # set unless there is an error
        else:
            done.set_exception(error)

    def in_thread() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised in the caller
            failed = error.with_traceback(None)  # its frames would keep the work's memory
        with suppress(RuntimeError, MemoryError):  # the loop has ended; COMPUTED_SECONDS_MAX
            loop.call_soon_threadsafe(end, result, failed)

    if not begin(in_thread):
        raise MemoryError
    async with asyncio.timeout(seconds):
        return await done
