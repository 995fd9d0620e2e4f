"""Classify problems with the state folder."""

import errno
import sqlite3
from pathlib import Path
from typing import NamedTuple

from vllm_watch.errors import StateError
from vllm_watch.state import file

REASONS = ("full", "not_writable", "refused", "damaged", "entry", "io")
"""`refused`: locked by another process, or written by a newer version. `entry`: one entry is unusable."""


class Trouble(NamedTuple):
    """One problem."""

    reason: str  # one of REASONS
    cause: str
    remedy: str


_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
_DENIED = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EEXIST)
)
_DENIED_BY_SQLITE = frozenset(
    (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
)


def of(error: BaseException, folder: Path) -> Trouble:
    """Return the problem that caused an error."""
    if isinstance(error, StateError):
        return Trouble("refused", error.cause, error.remedy)
    if file.is_damage(error):
        remedy = "It was moved aside and a new one was begun; check the disk."
        return Trouble("damaged", f"the state file in {folder} was damaged: {error}", remedy)
    number = error.errno if isinstance(error, OSError) else None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if number in _FULL or code == sqlite3.SQLITE_FULL:
        return Trouble("full", f"no space in {folder}: {error}", "Free space on that disk.")
    if number == errno.ELOOP:
        remedy = "Remove the link, and check the folder's permissions."
        return Trouble("not_writable", f"{folder}: {error}", remedy)
    if number in _DENIED or code in _DENIED_BY_SQLITE:
        remedy = "Make the folder writable for the user that vllm-watch runs as."
        return Trouble("not_writable", f"{folder} cannot be written: {error}", remedy)
    return Trouble("io", f"{folder}: {error}", "Check that disk and the kernel's log.")
