"""Take the stacks of a server on this host once when a hang begins."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from vllm_watch.board.board import Board
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.sources.sockets import serves_here
from vllm_watch.sources.stacks import Stacks

_log = structlog.get_logger()

AT_ONCE_MAX = 16
"""At most this many incidents wait for stacks. Further incidents get none."""


class HangStacks:
    """Calls `note` with the target, the incident's id and a text with the stacks."""

    def __init__(
        self, board: Board, stacks: Stacks, note: Callable[[str, str, str], None], procfs: Path
    ) -> None:
        self._board, self._stacks, self._note = board, stacks, note
        self._net = procfs / "self" / "net"
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def saw(self, target: str, events: Sequence[IncidentEvent]) -> None:
        self._tasks = {name: task for name, task in self._tasks.items() if self._is_open(name)}
        for each in (event.incident for event in events if event.incident.target == target):
            waiting = sum(not task.done() for task in self._tasks.values())
            known = each.stacks or each.id in self._tasks
            if each.hangs and each.open and not known and waiting < AT_ONCE_MAX:
                taking = self._take(target, each.id, each.engine)
                self._tasks[each.id] = asyncio.create_task(taking, name=f"stacks {target}")

    def stop(self) -> list[asyncio.Task[None]]:
        for task in self._tasks.values():
            task.cancel()
        return list(self._tasks.values())

    def _is_open(self, name: str) -> bool:
        incident = self._board.incidents.find(name)
        return incident is not None and incident.open

    async def _take(self, target: str, name: str, engine: str | None) -> None:
        try:
            entry = self._board.targets.get(target)
            if entry is None or not await serves_here(entry.target.url, self._net):
                return
            started = entry.signals.process_start_time if entry.signals else None
            port, engines = urlsplit(entry.target.url).port, tuple(entry.history)
            sentence = await self._stacks.sentence(started, port, engines, engine)
            if sentence:
                self._note(target, name, sentence)
        except Exception:  # noqa: BLE001 - the incident has no stacks then
            _log.exception("stacks_not_taken", target=target)
