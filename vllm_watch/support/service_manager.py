"""Report to systemd. Sources: sd_notify(3), sd_watchdog_enabled(3).

The event loop sends the watchdog messages, so systemd restarts the watcher if the loop hangs.
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
"""Maximum seconds between updates of the status in `systemctl status`."""

BEATS_PER_WATCHDOG = 2
"""Watchdog messages per WatchdogSec, as sd_watchdog_enabled(3) recommends."""


class ServiceManager:
    """Sends messages to systemd if `environ` has NOTIFY_SOCKET."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_seconds = _watchdog_seconds(environ) if self._address else None
        self._status: Callable[[], str] = str
        self._sent_status = ""
        self._failing = False
        self._beats: asyncio.Task[None] | None = None

    def ready(self, status: Callable[[], str]) -> None:
        if self._address is None:
            return
        self._status = status
        self._send("READY=1", *self._status_change())
        self._beats = asyncio.create_task(self._beat(), name="service manager")

    async def stopping(self, seconds: float = 0.0) -> None:
        """Report STOPPING and end the watchdog. `seconds` extends systemd's timeout."""
        more = (f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}",) if seconds else ()
        self._send("STOPPING=1", "STATUS=Stopping", *more)
        if self._beats is not None:
            self._beats.cancel()
            with suppress(asyncio.CancelledError):
                await self._beats

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._send("READY=1")

    async def _beat(self) -> None:
        watchdog = self._watchdog_seconds
        pause = STATUS_SECONDS if watchdog is None else watchdog / BEATS_PER_WATCHDOG
        while True:
            alive = () if watchdog is None else ("WATCHDOG=1",)
            self._send(*alive, *self._status_change())
            await asyncio.sleep(min(pause, STATUS_SECONDS))

    def _status_change(self) -> tuple[str, ...]:
        status = " ".join(self._status().split())  # a newline would begin another message
        if status == self._sent_status:
            return ()
        self._sent_status = status
        return (f"STATUS={status}",)

    def _send(self, *lines: str) -> None:
        if self._address is None or not lines:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)  # a full queue must not block the loop
                out.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._failing:
                _log.warning("service_manager_not_told", cause=error.strerror)
            self._failing = True
        else:
            self._failing = False


def _address(text: str) -> str | None:
    if text.startswith("/"):
        return text
    return f"\0{text[1:]}" if text.startswith("@") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
