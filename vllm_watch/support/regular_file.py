"""The one way to read a file that somebody names: a regular file, and never more than so many bytes of it.

Opening a pipe that nobody writes to blocks forever, and so does reading a device that never ends: in the event loop that
stops the daemon, in one of its threads it stops the exit. `tests/test_one_way_to_read.py` finds readers that do otherwise.
"""

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Literal

import structlog

_log = structlog.get_logger()

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


IfExposed = Literal["taken", "warned", "refused"]
"""What is done with a file that does not keep a secret. What opens vllm-watch to others is refused; what it carries to
others is taken with a warning: without it restarts and messages would stop, and it can be read all the same."""

_REMEDY = "chmod 600 it, or mount the Secret with defaultMode: 0440"
_warned: dict[str, str] = {}


class UnusableFileError(OSError):
    """Something else than a file stands there, or the file is not to be used."""

    def __init__(self, path: Path | str, what: str) -> None:
        super().__init__(errno.EINVAL, what, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class TooLargeError(UnusableFileError):
    """A file has more bytes than are read."""


def stamp(status: os.stat_result) -> tuple[int, int, int]:
    """What differs once a file was written again or replaced."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def opened(path: Path, *, follow: bool = True, pipes: bool = False) -> BufferedReader:
    """Open a file to be read piece by piece, without blocking. Raises OSError.

    Args:
        follow: a symbolic link may lead to it.
        pipes: take a pipe, too, as a shell's `<(command)` is one. For commands that the user can interrupt.
    """
    # Asked before it is opened: opening alone wakes the writer of a pipe, and rewinds a tape.
    mode = os.stat(path, follow_symlinks=follow).st_mode
    if not (pipes and stat.S_ISFIFO(mode)):
        refuse_odd(path, mode)
    descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(descriptor).st_mode
        if pipes and stat.S_ISFIFO(mode):
            os.set_blocking(descriptor, True)
        else:  # the kernel has files that are regular and never end, such as /proc/kmsg: they seem to end
            refuse_odd(path, mode)
        return BufferedReader(FileIO(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def read(
    path: Path, bytes_max: int, *, follow: bool = True, if_exposed: IfExposed = "taken"
) -> bytes:
    """Return all of a file. Raises OSError, also if it has more than `bytes_max` bytes.

    Args:
        follow: a symbolic link may lead to it.
        if_exposed: it holds a secret, and others may read it, or could replace it.
    """
    with opened(path, follow=follow) as file:
        _judge(path, os.fstat(file.fileno()), if_exposed)
        body = file.read(bytes_max + 1) or b""  # None: there is nothing to be read yet
    if len(body) > bytes_max:
        raise TooLargeError(path, f"is larger than {bytes_max:,} bytes")
    return body


def check(path: Path, if_exposed: IfExposed = "taken") -> None:
    """Raise OSError for a file that a library is about to read by its path, if it could not be `read`."""
    with opened(path) as file:
        _judge(path, os.fstat(file.fileno()), if_exposed)


def _judge(path: Path, status: os.stat_result, if_exposed: IfExposed) -> None:
    why = None if if_exposed == "taken" else exposure(status)
    if why is None:
        _warned.pop(str(path), None)
    elif if_exposed == "refused":
        raise UnusableFileError(path, f"{why}: {_REMEDY}")
    elif _warned.get(str(path)) != why:
        _warned[str(path)] = why
        _log.warning("secret_exposed", file=str(path), because=why, remedy=_REMEDY)


def exposure(status: os.stat_result) -> str | None:
    """Return why a file does not keep a secret, or None.

    A group may read it if the file is root's: Kubernetes mounts one so, by fsGroup.
    """
    mode = stat.S_IMODE(status.st_mode)
    by_group = 0 if status.st_uid != 0 else stat.S_IRGRP
    if mode & (stat.S_IRWXG | stat.S_IRWXO) & ~by_group:
        return "others may read it"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, who may change it"
    return None


def refuse_odd(path: Path | str, mode: int) -> None:
    """Raise OSError unless the mode is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    kinds = (
        (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a symbolic link"),
    )  # fmt: skip
    kind = next((said for is_kind, said in kinds if is_kind(mode)), "a device")
    raise UnusableFileError(path, f"is {kind}, not a regular file")
