"""A thread for one piece of work that may hang, begun without waiting for it.

`threading.Thread.start` waits until the new thread says that it runs. Where memory is at its limit the thread
can die before it says so, and the event loop would then wait for ever. This one is not waited for.
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
"""Where memory is at its limit the thread may die before it can say so; the largest body takes a second."""


def begin(work: Callable[[], None]) -> bool:
    """Run `work` in a thread that does not keep the process from ending; False where none can be had."""
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError):
        return False
    return True


async def computed(work: Callable[[], T]) -> T:
    """Return what `work` returns, computed beside the event loop, one such work at a time.

    Several at once would leave the loop one turn of several. Raises what `work` raises, and MemoryError where no
    thread can be had, or nothing comes of it in COMPUTED_SECONDS_MAX.
    """

    def alone() -> T:
        with _one_computes:
            return work()

    try:
        return await beside(alone, COMPUTED_SECONDS_MAX)
    except TimeoutError as error:
        raise MemoryError from error


async def beside(work: Callable[[], T], seconds: float) -> T:
    """Return what `work` returns, done in a thread that may hang, and does not keep the process from ending then.

    Raises what `work` raises, TimeoutError after `seconds`, and MemoryError where no thread can be had.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def end(result: T | None, error: Exception | None) -> None:
        if done.done():  # nobody waits any more
            return
        if error is None:
            done.set_result(result)  # type: ignore[arg-type] # one of the two is there
        else:
            done.set_exception(error)

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed = error.with_traceback(None)  # its frames hold what `work` had made
        with suppress(
            RuntimeError, MemoryError
        ):  # the loop has ended meanwhile; COMPUTED_SECONDS_MAX
            loop.call_soon_threadsafe(end, result, failed)

    if not begin(run):
        raise MemoryError
    async with asyncio.timeout(seconds):
        return await done
