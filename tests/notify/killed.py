"""A delivery that is killed at a chosen step: `python -m tests.notify.killed URL FOLDER STEP`.

Steps are counted through all writes to the disk and the sending itself, before and after each; at STEP the
process ends as by kill -9. Without one (-1) it ends when nothing waits any more.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from tests.notify.telling import desk, incident, settings


class Steps:
    """Counts, and ends the process at one."""

    def __init__(self, last):
        self._left = last

    def __call__(self):
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def around(self, call):
        async def counted(*arguments):
            self()
            done = await call(*arguments)
            self()
            return done

        return counted


async def main(url, folder, last):
    """One page, and one ticket of another group."""
    async with desk(settings(url), folder) as one:
        step = Steps(last)
        one.ledger.flush = step.around(one.ledger.flush)
        notifier = one.delivery._notifier
        notifier.send = step.around(notifier.send)
        one.offer(incident(t=time.time()), incident("b", t=time.time(), severity="ticket", group="mail"))  # fmt: skip
        async with asyncio.timeout(20):
            while one.delivery.queue:
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
