"""End exactly one process, pinned by a pidfd, so that no later process with its PID is hit.

Source: pidfd_open(2), pidfd_send_signal(2); Linux 5.3 and later.
"""

import asyncio
import os
import select
import signal
from pathlib import Path

from vllm_watch.errors import WatchError
from vllm_watch.sources.processes import ProcessFacts, ProcReader

SAME_START_SECONDS = 2.0
"""Tolerance for comparing start times. Each reading may be off by a second, and no PID is reused
that soon."""

_CLOSED = -1


class Pinned:
    """A process pinned by a pidfd, which must be closed."""

    def __init__(self, descriptor: int, facts: ProcessFacts) -> None:
        self.facts = facts
        self._descriptor = descriptor

    @property
    def pid(self) -> int:
        """The PID in our own namespace."""
        return self.facts.pid

    def lives(self) -> bool:
        """Return True if the process runs, False for a zombie."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    def send(self, number: signal.Signals | int) -> bool:
        """Send a signal. Signal 0 only checks the permission. Return False if the process was reaped. Raises PermissionError."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            return False
        return True

    async def ended(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = asyncio.Event()
        loop.add_reader(self._descriptor, end.set)
        try:
            async with asyncio.timeout(seconds):
                await end.wait()
        except TimeoutError:
            return not self.lives()
        finally:
            loop.remove_reader(self._descriptor)
        return True

    def state(self, procfs: Path = Path("/proc")) -> str | None:
        facts = ProcReader(procfs).read(self.pid)
        return facts.state if facts is not None and self._is_unreaped() else None

    def _is_unreaped(self) -> bool:
        try:
            return self.send(0)
        except PermissionError:
            return True

    def close(self) -> None:
        if self._descriptor != _CLOSED:
            os.close(self._descriptor)
            self._descriptor = _CLOSED


def pin(pid: int, create_time: float | None, procfs: Path = Path("/proc")) -> Pinned | None:
    """Pin the process. Return None if no process has this PID and start time. Raises WatchError if the kernel lacks pidfd_open."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        raise WatchError(
            f"process {pid} cannot be pinned: {error}",
            "it needs Linux 5.3 or later, and a sandbox that allows pidfd_open; else end the process by hand",
        ) from error
    facts = ProcReader(procfs).read(pid)
    # If the pinned process is still alive, the facts were read from it.
    pinned = None if facts is None else Pinned(descriptor, facts)
    if pinned is None or not pinned.lives() or not _started(pinned.facts, create_time):
        os.close(descriptor)
        return None
    return pinned


def _started(facts: ProcessFacts, create_time: float | None) -> bool:
    if facts.create_time is None or create_time is None:
        return False
    return abs(facts.create_time - create_time) <= SAME_START_SECONDS
