"""What kept us from asking: the failures of a call that say something about this host and nothing of the engine.

Without a file descriptor no connection can be made, and a process that did not run hears no answer in
time, however quickly it came. Taken for the engine's silence, either would page for every engine at once.
"""

import errno
import os
import socket

OUTCOME = "watcher"
"""How such a call ended; one of samples.observation.OUTCOMES."""

LATE_SECONDS, LATE_SHARE = 0.5, 0.25
"""A time-out that comes later than it was due by more than this, and than this share of the whole, was not
waited for: timers of a loop that runs are late by milliseconds, p99 below half a second with 1,000 targets.
The answer may lie in the socket."""

_ERRNOS = {
    errno.EMFILE: "no file descriptor is left to this process (raise LimitNOFILE or ulimit -n)",
    errno.ENFILE: "no file descriptor is left on this host (raise fs.file-max)",
    errno.ENOMEM: "no memory is left for a connection",
    errno.ENOBUFS: "no memory is left for a connection",
    errno.EADDRNOTAVAIL: "no local address or port is left to connect from",
}


NO_PLACE = (
    "no connection may be opened within the time: too many are (raise LimitNOFILE or ulimit -n)"
)


def of_error(error: BaseException) -> str | None:
    """In words, what this host lacks; None where the error is not of our making."""
    if isinstance(error, MemoryError):
        return "no memory is left for the answer (raise the limit that vllm-watch runs under)"
    cause = getattr(error, "os_error", error)
    number = cause.errno if isinstance(cause, OSError) else None
    if isinstance(cause, socket.gaierror):
        # The resolver needs a descriptor, and tells its lack as a name that does not resolve.
        number = _lacking()
    return _ERRNOS.get(number) if number is not None else None


def is_late(late_s: float, seconds: float) -> bool:
    """Did a time-out of so many seconds come so late that we cannot have run meanwhile?"""
    return late_s >= max(LATE_SECONDS, LATE_SHARE * seconds)


def held_up(late_s: float) -> str:
    """In words: we did not run."""
    return f"vllm-watch itself did not run for {late_s:.1f} s (suspended, or short of CPU)"


def certificates_unread(seconds: float) -> str:
    """In words: we had not read whom to trust when the call was over."""
    return (
        f"vllm-watch could not read its CA certificates or its own within {seconds:g} s "
        "(check the disk that holds them, and whether vllm-watch is short of CPU)"
    )


def _lacking() -> int | None:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno
    return None
