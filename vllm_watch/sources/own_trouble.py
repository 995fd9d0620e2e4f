"""Recognize failed calls that are this host's fault. Otherwise every engine would seem to be down."""

import errno
import os
import socket

OUTCOME = "watcher"
"""The outcome of such a call."""

LATE_SECONDS, LATE_SHARE = 0.5, 0.25
"""A timeout is trusted if it fires late by less than this many seconds, or this share of its
length. Timers of a running event loop are late by milliseconds."""

_ERRNOS = {
    errno.EMFILE: "no file descriptor is left to this process (raise LimitNOFILE or ulimit -n)",
    errno.ENFILE: "no file descriptor is left on this host (raise fs.file-max)",
    errno.ENOMEM: "no memory is left for a connection",
    errno.ENOBUFS: "no memory is left for a connection",
    errno.EADDRNOTAVAIL: "no local address or port is left to connect from",
}


NO_PLACE = (
    "no connection could be opened in time: too many are open (raise LimitNOFILE or ulimit -n)"
)


def of_error(error: BaseException) -> str | None:
    """Return the resource that this host lacks, or None if the error has another cause."""
    if isinstance(error, MemoryError):
        return "no memory is left for the answer (raise the limit that vllm-watch runs under)"
    cause = getattr(error, "os_error", error)
    number = cause.errno if isinstance(cause, OSError) else None
    if isinstance(cause, socket.gaierror):
        # Without a free descriptor, the resolver reports an unknown name.
        number = _lacking()
    return _ERRNOS.get(number) if number is not None else None


def is_late(late_s: float, seconds: float) -> bool:
    """Return True if a timeout of `seconds` fired too late to be trusted."""
    return late_s >= max(LATE_SECONDS, LATE_SHARE * seconds)


def held_up(late_s: float) -> str:
    """Return the error text for a suspended watcher."""
    return f"vllm-watch itself did not run for {late_s:.1f} s (suspended, or short of CPU)"


def _lacking() -> int | None:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno
    return None
