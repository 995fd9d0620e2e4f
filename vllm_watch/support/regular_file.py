"""Read regular files with a limit on their size.

A pipe or an endless device would block forever.
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
"""Policy for a secret that others can read. "refused" is for secrets that grant access to
vllm-watch, "warned" for secrets that it sends to others."""

_REMEDY = "chmod 600 it, or mount the Secret with defaultMode: 0440"
_warned: dict[str, str] = {}


class UnusableFileError(OSError):
    """The file is not regular, or its permissions are unsafe."""

    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(errno.EINVAL, cause, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class TooLargeError(UnusableFileError):
    """The file is longer than allowed."""


def stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Return a value that changes when the file is rewritten or replaced."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def opened(path: Path, *, follow: bool = True, pipes: bool = False) -> BufferedReader:
    """Open a file for reading. `pipes` allows a shell's `<(command)`. Raises OSError."""
    # Opening alone wakes the writer of a pipe and rewinds a tape.
    mode = os.stat(path, follow_symlinks=follow).st_mode
    if not (pipes and stat.S_ISFIFO(mode)):
        refuse_odd(path, mode)
    descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    try:
        mode = os.fstat(descriptor).st_mode
        if pipes and stat.S_ISFIFO(mode):
            os.set_blocking(descriptor, True)
        else:  # non-blocking, because endless files such as /proc/kmsg are regular
            refuse_odd(path, mode)
        return BufferedReader(FileIO(descriptor))
    except BaseException:
        os.close(descriptor)
        raise


def read(
    path: Path, bytes_max: int, *, follow: bool = True, if_exposed: IfExposed = "taken"
) -> bytes:
    """Return the whole file. Raises OSError, also if it is longer than `bytes_max`."""
    with opened(path, follow=follow) as file:
        _judge(path, os.fstat(file.fileno()), if_exposed)
        body = file.read(bytes_max + 1) or b""
    if len(body) > bytes_max:
        raise TooLargeError(path, f"is larger than {bytes_max:,} bytes")
    return body


def check(path: Path, if_exposed: IfExposed = "taken") -> None:
    """Raise OSError if `read` would. Call this before a library opens the file."""
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
    """Return why the permissions are unsafe, or None. A group may read root's files, because Kubernetes mounts Secrets with fsGroup."""
    mode = stat.S_IMODE(status.st_mode)
    by_group = 0 if status.st_uid != 0 else stat.S_IRGRP
    if mode & (stat.S_IRWXG | stat.S_IRWXO) & ~by_group:
        return "others may read it"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to user {status.st_uid}, who may change it"
    return None


def refuse_odd(path: Path | str, mode: int) -> None:
    """Raise OSError unless `mode` is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    kinds = (
        (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
        (stat.S_ISLNK, "a symbolic link"),
    )  # fmt: skip
    kind = next((name for is_kind, name in kinds if is_kind(mode)), "a device")
    raise UnusableFileError(path, f"is {kind}, not a regular file")
