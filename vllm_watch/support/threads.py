"""A thread for one piece of work that may hang, begun without waiting for it.

`threading.Thread.start` waits until the new thread says that it runs. Where memory is at its limit the thread
can die before it says so, and the event loop would then wait for ever. This one is not waited for.
"""

import _thread
from collections.abc import Callable


def begin(work: Callable[[], None]) -> bool:
    """Run `work` in a thread that does not keep the process from ending; False where none can be had."""
    try:
        _thread.start_new_thread(work, ())
    except (RuntimeError, MemoryError):
        return False
    return True
