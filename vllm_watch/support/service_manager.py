"""Tells systemd how we are: ready, at what, alive, reloading, stopping.

Datagrams to the socket that systemd names in the environment; without one nothing is sent. A beat is a
task of the event loop that does all the work: where the loop stands still no beat is sent, and systemd
starts us anew after WatchdogSec. Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import structlog

_log = structlog.get_logger()

STATUS_SECONDS = 5.0
"""How old the line in `systemctl status` may be: that of one look at the default interval."""

BEATS_PER_WATCHDOG = 2
"""sd_watchdog_enabled(3): send one every half of the time that is allowed."""


class ServiceManager:
    """What systemd is told; of `environ` NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environ) if self._address else None
        self._status: Callable[[], str] = str
        self._told = ""  # the last status
        self._failing = False
        self._beats: asyncio.Task[None] | None = None

    def ready(self, status: Callable[[], str]) -> None:
        """Say that we serve, and from now on the status when it changes, and that the loop turns."""
        if self._address is None:
            return
        self._status = status
        self._tell("READY=1", *self._news())
        self._beats = asyncio.create_task(self._beat(), name="service manager")

    async def stopping(self, seconds: float = 0.0) -> None:
        """Say that we end; no beat is sent from now on, nor asked for. `seconds`: what we wait for before that."""
        more = (f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}",) if seconds else ()
        self._tell("STOPPING=1", "STATUS=Stopping", *more)
        if self._beats is not None:
            self._beats.cancel()
            with suppress(asyncio.CancelledError):
                await self._beats

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        """Say that the configuration is being read, and at the end, however it ended, that we serve."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._tell("READY=1")

    async def _beat(self) -> None:
        watchdog = self._watchdog_seconds
        pause = STATUS_SECONDS if watchdog is None else watchdog / BEATS_PER_WATCHDOG
        while True:
            alive = () if watchdog is None else ("WATCHDOG=1",)
            self._tell(*alive, *self._news())
            await asyncio.sleep(min(pause, STATUS_SECONDS))

    def _news(self) -> tuple[str, ...]:
        status = " ".join(self._status().split())  # a line of its own would be another message
        if status == self._told:
            return ()
        self._told = status
        return (f"STATUS={status}",)

    def _tell(self, *lines: str) -> None:
        if self._address is None or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)  # a full queue must not hold the loop: there is a next beat
                out.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._failing:
                _log.warning("service_manager_not_told", cause=error.strerror)
            self._failing = True
        else:
            self._failing = False


def _address(text: str) -> str | None:
    """The socket's address as the kernel takes it: a path, or an abstract name; None for anything else."""
    if text.startswith("/"):
        return text
    return f"\0{text[1:]}" if text.startswith("@") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Within what time a beat is expected; None where none is, or of another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
