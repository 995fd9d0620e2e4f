"""The calendars of freezes, read again when they change. One that cannot be read blocks all restarts."""

import asyncio
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import structlog

from vllm_watch.restart import ical
from vllm_watch.settings.restart import RestartSettings
from vllm_watch.settings.windows import Freeze

_log = structlog.get_logger()

LOOK_SECONDS = 10.0
"""From one look at the files to the next: a freeze that somebody adds holds within this."""

BYTES_MAX = 2 << 20
"""A calendar of some thousand events."""

READ_SECONDS = 5.0
"""A file that takes longer lies on a file system that hangs."""

AHEAD_SECONDS, AGAIN_SECONDS = 2 * 86400.0, 3600.0
"""So far ahead recurring freezes are written out, and after this long again."""

_Key = tuple[Path, str]  # the file, and the zone of times without one


@dataclass(slots=True)
class _Calendar:
    """One file as last read."""

    stamp: tuple[int, int, int] | None = None
    read_t: float = 0.0
    freezes: tuple[Freeze, ...] = ()
    error: str | None = "it was not read yet"


class FreezeCalendars:
    """All files that are configured anywhere."""

    def __init__(self) -> None:
        self._calendars: dict[_Key, _Calendar] = {}

    def of(self, settings: RestartSettings) -> tuple[tuple[Freeze, ...], str | None]:
        """Return the freezes of the settings' calendar, and why it cannot be read, in words."""
        if settings.freeze_calendar_file is None:
            return (), None
        found = self._calendars.get(_key(settings), _Calendar())
        return found.freezes, found.error

    async def look(self, settings: Iterable[RestartSettings]) -> None:
        """Read what has changed, and forget what is configured no more. Never raises."""
        wanted = {_key(each) for each in settings if each.freeze_calendar_file is not None}
        self._calendars = {key: self._calendars.get(key, _Calendar()) for key in wanted}
        for (path, zone), known in list(self._calendars.items()):
            try:
                async with asyncio.timeout(READ_SECONDS):
                    found = await asyncio.to_thread(_read, path, zone, known)
            except TimeoutError:
                found = _Calendar(error=f"{path} was not read within {READ_SECONDS:.0f} s")
            if found.error not in (known.error, None):
                _log.error("freeze_calendar_unreadable", file=str(path), because=found.error)
            self._calendars[path, zone] = found


def _key(settings: RestartSettings) -> _Key:
    assert settings.freeze_calendar_file is not None  # noqa: S101 - asked before
    return settings.freeze_calendar_file, settings.time_zone


def _read(path: Path, zone: str, known: _Calendar) -> _Calendar:
    now_t = time.time()
    try:
        found = path.stat()
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
        if stamp == known.stamp and 0 <= now_t - known.read_t < AGAIN_SECONDS:
            return known
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")  # noqa: TRY301
        if found.st_size > BYTES_MAX:
            raise ValueError(f"it is larger than {BYTES_MAX >> 20} MiB")  # noqa: TRY301
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1).decode()
        freezes = ical.freezes(text, ZoneInfo(zone), now_t - 1.0, now_t + AHEAD_SECONDS)
    except (OSError, ValueError) as error:
        return _Calendar(error=f"{path}: {error}")
    return _Calendar(stamp, now_t, freezes, None)
