"""Keep the last minutes of a series of texts, with limits on age and size.

Records are packed into chunks. Each group of chunks begins with a full text, so that older groups
can be dropped. With a spool, the chunks are in one bounded file. Each chunk goes into the first gap
that is large enough.
"""

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vllm_watch.sources.body_deltas import Decoder, Encoder, Lines
from vllm_watch.sources.spool import Chunk, Spool

_LEVEL = 1  # level 3 takes twice as long, but makes records only 10 % smaller
_GROUPS = 10  # a group is dropped whole, so up to a tenth too much is kept
_OPEN_CHARACTERS_MAX = 32 << 10  # some fifteen scrapes, packed in half a millisecond
_OPEN_SHARE = 8
_READ_TIMEOUT_SECONDS = 30.0  # 8 MB from a disk under load


@dataclass(slots=True)
class _Group:
    first_seconds: float
    last_seconds: float
    chunks: list[Chunk] = field(default_factory=list)
    packed_bytes: int = 0

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.packed_bytes += chunk.length

    @property
    def memory_bytes(self) -> int:
        return sum([chunk.length for chunk in self.chunks if chunk.offset is None])


class Tape:
    """Keeps `seconds` of history in at most `bytes_max` of packed records."""

    def __init__(self, *, seconds: float, bytes_max: int, spool: Spool | None) -> None:
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._spool = spool
        self._file = spool.new_file() if spool else None
        self._encoder = Encoder()
        self._groups: list[_Group] = []  # oldest first; the last is still growing
        self._is_closed = True
        self._open: list[str] = []
        self._open_characters = 0

    @property
    def span_seconds(self) -> float:
        groups = self._groups
        return groups[-1].last_seconds - groups[0].first_seconds if groups else 0.0

    @property
    def newest_seconds(self) -> float:
        return self._groups[-1].last_seconds if self._groups else 0.0

    @property
    def memory_bytes(self) -> int:
        # Without a disk, all packed data is in memory.
        packed = sum(
            [group.memory_bytes if self._spool else group.packed_bytes for group in self._groups]
        )
        return self._encoder.memory_bytes + self._open_characters + packed

    def append(
        self,
        clock_seconds: float,
        head: str,
        text: str | None,
        lines: Lines | None = None,
        *,
        memory_bytes: int,
    ) -> None:
        if self._is_closed or self._is_full(self._groups[-1], clock_seconds, memory_bytes):
            self._end_group()
            self._groups.append(_Group(clock_seconds, clock_seconds))
            self._is_closed = False
        record = self._encoder.encode(head, text, lines)
        self._open.append(record)
        self._open_characters += len(record)
        self._groups[-1].last_seconds = clock_seconds
        if self._open_characters >= min(_OPEN_CHARACTERS_MAX, memory_bytes // _OPEN_SHARE):
            self._pack()
        while len(self._groups) > 1 and (
            self._groups[0].last_seconds < clock_seconds - self._seconds
        ):
            self._drop(0)

    def free_memory(self) -> None:
        """Pack the open records if there is a spool. Otherwise drop the oldest group in memory."""
        if self._spool and (self._open or self._encoder.memory_bytes):
            self._end_group()
            return
        for index, group in enumerate(self._groups):
            if group.memory_bytes or index == len(self._groups) - 1:
                self._drop(index)
                return

    async def packed_groups(self, since_seconds: float) -> list[list[bytes]]:
        """Raises TimeoutError if the disk does not answer."""
        groups = [group for group in self._groups if group.last_seconds >= since_seconds]
        last = [_packed(self._open)] if self._open else []
        chunks = [chunk for group in groups for chunk in group.chunks]
        found: Sequence[bytes | None] = [chunk.packed for chunk in chunks]
        lengths = [len(group.chunks) for group in groups]
        if self._spool and self._file:
            reading = asyncio.wrap_future(self._spool.read(self._file, chunks))
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                found = await reading
        pieces = iter(found)
        fetched = [_until_gone([next(pieces) for _ in range(length)]) for length in lengths]
        if fetched and len(fetched[-1]) == lengths[-1]:
            fetched[-1] += last
        return fetched

    def forget(self) -> None:
        while self._groups:
            self._drop(0)
        if self._spool and self._file:
            self._spool.remove(self._file)

    def _is_full(self, group: _Group, clock_seconds: float, memory_bytes: int) -> bool:
        age = clock_seconds - group.first_seconds  # negative if the clock was set back
        if not 0 <= age < self._seconds / _GROUPS:
            return True
        if not group.chunks:
            return False
        # Groups are dropped whole, so each must be small, but larger than its full first text.
        bytes_max = self._bytes_max if self._spool else min(self._bytes_max, memory_bytes)
        return group.packed_bytes >= max(bytes_max // _GROUPS, 2 * group.chunks[0].length)

    def _end_group(self) -> None:
        if self._open:
            self._pack()
        self._encoder.reset()
        self._is_closed = True

    def _pack(self) -> None:
        chunk = Chunk(_packed(self._open))
        self._open, self._open_characters = [], 0
        self._groups[-1].add(chunk)
        while sum(group.packed_bytes for group in self._groups) > self._bytes_max:
            self._drop(0)
        if self._spool and self._file and self._groups:
            while (offset := self._first_gap(chunk.length)) + chunk.length > self._bytes_max:
                self._drop(0)
            self._spool.write(self._file, chunk, offset)

    def _first_gap(self, length: int) -> int:
        taken = sorted(
            (chunk.offset, chunk.length)
            for group in self._groups
            for chunk in group.chunks
            if chunk.offset is not None
        )
        end = 0
        for offset, taken_length in taken:
            if offset - end >= length:
                break
            end = offset + taken_length
        return end

    def _drop(self, index: int) -> None:
        for chunk in self._groups.pop(index).chunks:
            chunk.packed = None
        if index == len(self._groups):
            self._open, self._open_characters = [], 0
            self._encoder.reset()
            self._is_closed = True


def _packed(records: list[str]) -> bytes:
    return zlib.compress("".join(records).encode("utf-8", "surrogatepass"), _LEVEL)


def _until_gone(pieces: list[bytes | None]) -> list[bytes]:
    found = []
    for piece in pieces:
        if piece is None:
            break
        found.append(piece)
    return found


def records(group: Sequence[bytes]) -> Iterator[tuple[str, list[str] | None]]:
    """Yield the head line of each record, and the lines of its text or None. Raises zlib.error if the data is damaged."""
    decoder = Decoder()
    for packed in group:
        yield from decoder.decode(zlib.decompress(packed).decode("utf-8", "surrogatepass"))
