"""What there is to know of a target at one moment, as files: for the morning after its server was restarted."""

from collections.abc import AsyncIterator, Mapping

from vllm_watch.board.board import Board
from vllm_watch.export.status import Status
from vllm_watch.sources.engine_log import EngineLog
from vllm_watch.sources.flight_recorder import FlightRecorder

RECORDING_SECONDS = 600.0
"""What led to the incident, and the usual before it."""


class Evidence:
    """The recording, the target, its incidents, the GPUs, and the end of the engine's log where one is read."""

    def __init__(
        self, board: Board, recorder: FlightRecorder, logs: Mapping[str, EngineLog]
    ) -> None:
        """`logs`: of the targets of which one is read."""
        self._status = Status(board)
        self._recorder = recorder
        self._logs = logs

    def parts(self, target: str) -> Mapping[str, AsyncIterator[bytes]]:
        """Return what there is of a target, by file name."""
        parts = {
            "recording.jsonl.gz": self._recorder.dump(target, RECORDING_SECONDS),
            "target.json": _once(self._status.target(target) or "null"),
            "incidents.json": _once(self._status.incidents(target)),
            "gpus.json": _once(self._status.gpus()),
        }
        if target in self._logs:
            parts["engine.log"] = self._logs[target].tail()
        return parts


async def _once(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
