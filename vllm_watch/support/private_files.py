"""Create files and folders for their owner only, and never through a symlink."""

import errno
import os
import stat
from pathlib import Path

from vllm_watch.support import regular_file

FILE_MODE, FOLDER_MODE = 0o600, 0o700


def own_folder(folder: Path) -> None:
    """Create the folder if it is missing. Raises OSError, also for a symlink."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    refuse_odd(folder)


def refuse_odd(path: Path) -> None:
    """Raise OSError for a symlink, pipe or device."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise _link(str(path))
    if not stat.S_ISDIR(mode):
        regular_file.refuse_odd(path, mode)


def opener(path: str, flags: int) -> int:
    """Use as `open(…, opener=opener)`. Raises OSError for a symlink, pipe or device."""
    refuse_odd(Path(path))
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise (_link(path) if error.errno == errno.ELOOP else error) from None


def _link(path: str) -> OSError:
    return OSError(errno.ELOOP, "is a symlink; refusing to write through it: remove it", path)
