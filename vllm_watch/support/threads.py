"""Run work that may hang in a thread, without waiting for the thread's start.

`threading.Thread.start` waits until the new thread runs. When memory is short the thread can die before that, and the
event loop would wait forever. Threads started here are not waited for.
"""

import _thread
import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

_one_computes = threading.Lock()

COMPUTED_SECONDS_MAX = 30.0
"""When memory is short the thread may die without a result; the largest body takes a second."""


def begin(work: Callable[[], None]) -> bool:
    """Run `work` in a thread that does not delay the process' exit; return False if none can be started."""
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError):
        return False
    return True


async def compute(work: Callable[[], T]) -> T:
    """Run `work` outside the event loop and return its result; one at a time.

    Several at once would leave the loop only a share of the CPU. Raises as `work` does, and MemoryError if no thread can be
    started or there is no result within COMPUTED_SECONDS_MAX.
    """

    def alone() -> T:
        with _one_computes:
            return work()

    try:
        return await run(alone, COMPUTED_SECONDS_MAX)
    except TimeoutError as error:
        raise MemoryError from error


async def run(work: Callable[[], T], seconds: float) -> T:
    """Run `work` in a thread that may hang without delaying the process' exit, and return its result.

    Raises as `work` does, TimeoutError after `seconds`, and MemoryError if no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: Exception | None) -> None:
        if done.done():  # the caller has given up
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
