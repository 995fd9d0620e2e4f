"""Save charts for the next run of the watcher."""

import time
from collections.abc import Iterator

from vllm_watch.board import uptime
from vllm_watch.board.board import Board, Past
from vllm_watch.board.history import FORM, History
from vllm_watch.board.uptime import Day
from vllm_watch.state.charts import UPTIME, ChartTable, Part

SAVE_SECONDS = 300.0
"""Seconds between saves. A save writes 13 KB per engine."""

PARTS_MAX = 1000
"""At most this many charts are saved. Further charts start empty."""

_DAY, _ENGINE = "day", "engine "


def _is_ours(part: Part) -> bool:
    if part.name == _DAY:
        return part.form.split()[:2] == FORM.split()[:2]
    return part.form == (uptime.FORM if part.name == UPTIME else FORM)


class ChartMemory:
    """The saved charts of all targets."""

    def __init__(self, disk: ChartTable, board: Board) -> None:
        self._disk = disk
        self._board = board
        self._saved_s: dict[str, float] = {}
        self._parts: set[tuple[str, str]] = set()

    async def open(self) -> None:
        """Read the charts; the board shows them once their targets are added."""
        for part in await self._disk.open():
            if not _is_ours(part):
                continue
            past = self._board.past.setdefault(part.target, Past())
            try:
                if part.name == _DAY:
                    past.day = Day.restored(part.data)
                elif part.name == UPTIME:
                    past.uptime = uptime.Uptime.restored(part.data)
                else:
                    label = part.name.removeprefix(_ENGINE)
                    past.history[label] = History.restored(part.data)
            except ValueError as error:
                self._disk.damaged(part, str(error))

    def keep(self, target: str) -> None:
        now_s = time.monotonic()
        if now_s - self._saved_s.setdefault(target, now_s) >= SAVE_SECONDS:
            self._save(target)

    def save(self) -> None:
        for target in self._board.targets:
            self._save(target)

    def _save(self, target: str) -> None:
        self._saved_s[target] = time.monotonic()
        for part in self._parts_of(target):
            key = (part.target, part.name)
            if len(self._parts) >= PARTS_MAX and key not in self._parts:
                here = self._board.targets
                self._parts = {each for each in self._parts if each[0] in here}
                self._saved_s = {name: s for name, s in self._saved_s.items() if name in here}
            if len(self._parts) < PARTS_MAX or key in self._parts:
                self._parts.add(key)
                self._disk.put(part)

    def _parts_of(self, target: str) -> Iterator[Part]:
        entry = self._board.targets.get(target)
        if entry is not None:
            yield Part(target, UPTIME, uptime.FORM, entry.uptime.export())
            yield Part(target, _DAY, FORM, entry.day.export())
            for label, history in entry.history.items():
                yield Part(target, _ENGINE + label, FORM, history.export())
