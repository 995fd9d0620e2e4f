"""Find and prepare a command's state folder."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from vllm_watch.config import load
from vllm_watch.errors import JournalError
from vllm_watch.state import file
from vllm_watch.state.journal import Journal
from vllm_watch.support.private_files import opener


def find(given: Path | None) -> Path:
    """Return the given folder, the configured `state_dir`, or the user's default. Raises ConfigError."""
    if given is not None:
        return given
    configured = load(None, environ=os.environ).state_dir
    if configured is not None:
        return configured
    home = Path(os.environ.get("HOME", "/root"), ".local/state")
    return Path(os.environ.get("XDG_STATE_HOME") or home, "vllm-watch")


@asynccontextmanager
async def journal(folder: Path) -> AsyncIterator[Journal]:
    """Open the folder's journal."""
    opened = Journal(folder)
    try:
        yield opened
    finally:
        await opened.close()


def make(folder: Path) -> None:
    """Create the folder. As root, also create an empty state file for the folder's owner. Raises JournalError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / file.NAME
        if os.geteuid() == 0 and not path.exists():
            owner = folder.stat()
            descriptor = opener(str(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            os.close(descriptor)
    except OSError as error:
        trouble = file.trouble_of(error, folder)
        raise JournalError(trouble.cause, trouble.remedy) from error
