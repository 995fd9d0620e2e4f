"""The gate's words as files in a folder that the watcher shares with the engine's container.

`kill` and `drain` hold a word, the start of the server that is meant, and when they were written: a probe
takes one for true only while it is younger than FRESH_SECONDS. So what a watcher leaves behind when it dies
is void within a minute, and it is void at once where that server has ended. `asked` is the probe's own.
"""

import asyncio
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from vllm_watch.support import regular_file

_log = structlog.get_logger()

KILL, DRAIN, ASKED = "kill", "drain", "asked"
_WORDS = {KILL: "kill", DRAIN: "no"}

FRESH_SECONDS = 60.0
"""How long a word holds that nobody has written anew; probes compare it, so it is a contract."""

REFRESH_SECONDS = 15.0
"""Three may fail before a word is void."""

IO_SECONDS = 5.0
"""A local folder takes a millisecond; one that hangs must not hang the watcher."""

_BYTES_MAX = 200
_ASKED = re.compile(r"(\d{0,11}) (\d{1,11})\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the probe has left of itself."""

    t: float  # Unix seconds: when it last asked
    started_t: float | None  # when its container began; None: it could not tell


async def keep(folder: Path, name: str, started_t: float, seconds: float | None = None) -> None:
    """Say it of the server that started then, for so long or until cancelled. Never raises."""
    until_s = None if seconds is None else time.monotonic() + seconds
    while until_s is None or time.monotonic() < until_s:
        # The time is taken first: what is written too late, by a watcher that was stopped, is old.
        text = f"{_WORDS[name]} {started_t:.0f} {int(time.time())}\n"
        try:
            async with asyncio.timeout(IO_SECONDS):
                await asyncio.to_thread(_write, folder / name, text)
        except OSError as error:  # a TimeoutError is one
            _log.error("gate_file_not_written", file=str(folder / name), error=str(error))
        await asyncio.sleep(REFRESH_SECONDS)


async def remove(folder: Path, name: str) -> None:
    """Say it no more. Never raises."""
    try:
        async with asyncio.timeout(IO_SECONDS):
            await asyncio.to_thread((folder / name).unlink, missing_ok=True)
    except OSError as error:
        _log.error("gate_file_not_removed", file=str(folder / name), error=str(error))


async def asked(folder: Path) -> Asked | None:
    """Return when a probe has last looked into the folder; None: never, or it cannot be read."""
    try:
        async with asyncio.timeout(IO_SECONDS):
            text = await asyncio.to_thread(_read, folder / ASKED)
    except OSError:
        return None
    found = _ASKED.fullmatch(text)
    if found is None:
        return None
    return Asked(t=float(found[2]), started_t=float(found[1]) if found[1] else None)


async def trouble(folder: Path) -> str | None:
    """Say why nothing can be written there, or None."""
    probe = folder / ".vllm-watch"
    try:
        async with asyncio.timeout(IO_SECONDS):
            await asyncio.to_thread(_write, probe, "")
            await asyncio.to_thread(probe.unlink, missing_ok=True)
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or 'it does not answer'}"
    return None


def _write(path: Path, text: str) -> None:
    """Replace the whole file at once: a probe never reads half of one."""
    beside = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()
    # Never through a link that the container on the other side has laid there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(beside, flags, 0o644), "w") as file:
        file.write(text)
    beside.rename(path)


def _read(path: Path) -> str:
    return regular_file.read(path, _BYTES_MAX, follow=False).decode("ascii", "replace")
