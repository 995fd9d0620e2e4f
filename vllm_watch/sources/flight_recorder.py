"""Record the last minutes of every target, and export them as a trace file.

Each observation is exported with the GPU reading that was used to judge it.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from pathlib import Path

import structlog

from vllm_watch.samples.gpu import GpuReading
from vllm_watch.samples.observation import Observation
from vllm_watch.sources import trace_line
from vllm_watch.sources.exposition import Lines
from vllm_watch.sources.tape import Spool, Tape, records

_log = structlog.get_logger()
_SHRINK_RATIO = 15 / 16  # shrinking visits every target, so it should be rare
_GPU_AGE_SECONDS_MAX = 60.0
_DUMP_LINES = 16  # compressing these takes a thread 20 ms
_DUMP_LEVEL = 3  # level 6 takes three times as long, but makes files only 12 % smaller
_CLOSE_SECONDS = 2.0  # maximum wait for the disk
_GZIP_MEMBER = 31

_encode = json.JSONEncoder(separators=(",", ":")).encode


class FlightRecorder:
    """Keeps the last `seconds` of each target, if the byte limits allow. Call it from the event
    loop.

    Without `spool_dir`, or if its disk fails, `memory_bytes_max` limits all targets together.
    """

    def __init__(
        self,
        *,
        seconds: float = 600,
        bytes_max_per_target: int = 8 << 20,
        memory_bytes_max: int = 64 << 20,
        spool_dir: Path | None = None,
    ) -> None:
        self._seconds = seconds
        self._bytes_max = bytes_max_per_target
        self._memory_bytes_max = memory_bytes_max
        self._spool = Spool(spool_dir) if spool_dir else None
        self._tapes: dict[str, Tape] = {}
        self._urls: dict[str, str] = {}
        self._gpus = self._new_tape()
        self._gpu_reading = 0
        self._memory: dict[Tape, int] = {}
        self._memory_bytes = 0

    def name_url(self, target: str, url: str) -> None:
        self._urls[target] = url

    def observe(
        self, observation: Observation, body: str | None, lines: Lines | None = None
    ) -> None:
        tape = self._tapes.get(observation.target)
        if tape is None:
            tape = self._tapes[observation.target] = self._new_tape()
        clock = observation.monotonic_s
        gpu_reading = 0 if observation.gpus is None else self._gpu_reading
        head = f"{gpu_reading}\t{observation.t!r}\t{trace_line.remainder(observation)}"
        self._append(tape, observation.t if clock is None else clock, head, body, lines)

    def observe_gpus(self, reading: GpuReading) -> None:
        self._gpu_reading += 1
        gpus = reading.known_gpus
        body = None if gpus is None else _encode(trace_line.gpus_to_json(gpus))
        self._append(self._gpus, reading.t, f"{self._gpu_reading}\t{reading.t!r}", body)

    def forget(self, target: str) -> None:
        self._urls.pop(target, None)
        tape = self._tapes.pop(target, None)
        if tape is not None:
            tape.forget()
            self._memory_bytes -= self._memory.pop(tape)

    def span_seconds(self, target: str) -> float:
        tape = self._tapes.get(target)
        return min(tape.span_seconds, self._seconds) if tape else 0.0

    def memory_bytes(self, target: str) -> int:
        tape = self._tapes.get(target)
        return tape.memory_bytes if tape else 0

    async def dump(self, target: str, seconds: float) -> AsyncIterator[bytes]:
        """Yield a gzip trace file in pieces. Raises TimeoutError before the first piece if the spool's disk does not answer."""
        tape = self._tapes.get(target)
        lines: Iterator[bytes] = iter(())
        if tape is not None:
            since = tape.newest_seconds - seconds
            groups = await tape.packed_groups(since)
            gpus = await self._gpus.packed_groups(float("-inf"))
            lines = _lines(self._urls.get(target, target), groups, gpus, since)
        deflate = zlib.compressobj(_DUMP_LEVEL, wbits=_GZIP_MEMBER)
        empty = True
        while batch := await asyncio.to_thread(lambda: b"".join(islice(lines, _DUMP_LINES))):
            empty = False
            if piece := await asyncio.to_thread(deflate.compress, batch):
                yield piece
        if not empty:
            yield deflate.flush()

    async def close(self) -> None:
        for target in list(self._tapes):
            self.forget(target)
        if self._spool:
            await asyncio.to_thread(self._spool.close, _CLOSE_SECONDS)

    def _new_tape(self) -> Tape:
        return Tape(seconds=self._seconds, bytes_max=self._bytes_max, spool=self._spool)

    def _append(
        self,
        tape: Tape,
        clock_seconds: float,
        head: str,
        text: str | None,
        lines: Lines | None = None,
    ) -> None:
        if self._spool:
            self._spool.free_written()
        share_bytes = self._memory_bytes_max // max(1, len(self._tapes))
        head = f"{clock_seconds!r}\t{head}"
        tape.append(clock_seconds, head, text, lines, memory_bytes=share_bytes)
        self._count(tape)
        if self._memory_bytes > self._memory_bytes_max:
            self._shrink()

    def _count(self, tape: Tape) -> None:
        memory_bytes = tape.memory_bytes
        self._memory_bytes += memory_bytes - self._memory.get(tape, 0)
        self._memory[tape] = memory_bytes

    def _shrink(self) -> None:
        """Shrink the largest tapes first, so that similar targets keep equally long histories."""
        for tape in self._memory:
            self._count(tape)  # some data may have moved to disk since the last count
        if self._memory_bytes <= self._memory_bytes_max:
            return
        while self._memory_bytes > self._memory_bytes_max * _SHRINK_RATIO:
            largest = max(self._memory, key=self._memory.__getitem__)
            largest.free_memory()
            self._count(largest)


class _GpuReadings:
    def __init__(self, groups: Sequence[Sequence[bytes]]) -> None:
        self._coming = _unpacked(groups)
        self._next = next(self._coming, None)
        self._t = 0.0
        self._json = "null"

    def at(self, number: int, t: float) -> str:
        """Return the newest of the first `number` readings, or "null" if that reading is too old at `t`."""
        if not number:
            return "null"
        while self._next and int((fields := self._next[0].split("\t"))[1]) <= number:
            lines = self._next[1]
            self._json = "null" if lines is None else "".join(lines)
            self._t = float(fields[2])
            self._next = next(self._coming, None)
        return self._json if t - self._t <= _GPU_AGE_SECONDS_MAX else "null"


def _lines(
    url: str,
    groups: Sequence[Sequence[bytes]],
    gpu_groups: Sequence[Sequence[bytes]],
    since_seconds: float,
) -> Iterator[bytes]:
    gpus = _GpuReadings(gpu_groups)
    for head, lines in _unpacked(groups):
        clock, gpu_reading, t, rest = head.split("\t", 3)
        if float(clock) >= since_seconds:
            body = None if lines is None else "\n".join(lines)
            gpus_json = gpus.at(int(gpu_reading), float(t))
            yield trace_line.assemble(float(t), url, rest, body, gpus_json)


def _unpacked(groups: Sequence[Sequence[bytes]]) -> Iterator[tuple[str, list[str] | None]]:
    for group in groups:
        try:
            yield from records(group)
        except zlib.error as error:
            _log.warning("flight recorder spool gave back damaged data", error=str(error))
