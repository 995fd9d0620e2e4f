"""Files and folders that we make: for their owner only, and never through a link that somebody laid there."""

import errno
import os
import stat
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def too_open(status: os.stat_result) -> bool:
    """May others read this secret? A group may where the file is root's: so Kubernetes mounts one, by fsGroup."""
    mode = stat.S_IMODE(status.st_mode)
    by_group = 0 if status.st_uid != 0 else stat.S_IRGRP
    return bool(mode & (stat.S_IRWXG | stat.S_IRWXO) & ~by_group)


def own_folder(folder: Path) -> None:
    """Make the folder if it is missing. Raises OSError, also where a link stands in its place."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    refuse_link(folder)


def refuse_link(path: Path) -> None:
    """Raise OSError where a link stands: what is written there would land in a place of another's choice."""
    try:
        is_link = stat.S_ISLNK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if is_link:
        raise _link(str(path))


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a file that is made is for its owner only, and none is a link."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise (_link(path) if error.errno == errno.ELOOP else error) from None


def _link(path: str) -> OSError:
    said = "a link stands there, and nothing is written through links: remove it"
    return OSError(errno.ELOOP, said, path)
