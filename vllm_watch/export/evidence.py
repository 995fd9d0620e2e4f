"""Collect a target's state as files, for analysis after a restart."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from vllm_watch.board.board import Board
from vllm_watch.export.status import Status
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.flight_recorder import FlightRecorder
from vllm_watch.sources.sockets import serves_here
from vllm_watch.sources.stacks import Stacks

RECORDING_SECONDS = 600.0
"""The recording covers this many seconds, so that it begins before the incident."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Collects the files of a target."""

    board: Board
    recorder: FlightRecorder
    logs: Mapping[str, EngineLog]
    stacks: Stacks | None = None

    def parts(self, target: str) -> Mapping[str, AsyncIterator[bytes]]:
        status = Status(self.board)
        parts = {
            "recording.jsonl.gz": self.recorder.dump(target, RECORDING_SECONDS),
            "target.json": _once(status.target(target) or "null"),
            "incidents.json": _once(status.incidents(target)),
            "gpus.json": _once(status.gpus()),
        }
        if target in self.logs:
            parts["engine.log"] = self.logs[target].tail()
        stacks = self._stacks_of(target)
        return parts if stacks is None else parts | {"stacks.txt": stacks}

    def _stacks_of(self, target: str) -> AsyncIterator[bytes] | None:
        entry = self.board.targets.get(target)
        if self.stacks is None or entry is None:
            return None
        if not any(each.hangs for each in entry.incidents.open.values()):
            return None
        started = entry.signals.process_start_time if entry.signals else None
        url = entry.target.url
        stacks = self.stacks.of(started, urlsplit(url).port, tuple(entry.history))
        return None if stacks is None else _here(url, stacks)


async def _here(url: str, stacks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if not await serves_here(url):
        raise LookupError("it runs on another host")
    async for chunk in stacks:
        yield chunk


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
