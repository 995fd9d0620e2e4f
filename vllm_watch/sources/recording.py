"""Read and write trace files, gzip or plain text. The file is a chain of gzip members, so that its
older half can be cut off."""

import gzip
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Self

from vllm_watch.errors import ExpositionError, RecordingError
from vllm_watch.samples.observation import Call, Observation, Reading
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.trace_line import SERVER_FIELDS, RawObservation, from_line, known_fields
from vllm_watch.support import regular_file
from vllm_watch.support.private_files import opener

_GZIP_MAGIC = b"\x1f\x8b"
_LINE_BYTES_MAX = 16 << 20  # a body has up to 2 MiB, and JSON doubles some of its characters
BLANK_LINES_MAX = 10_000
"""Maximum number of blank lines. A few kilobytes of gzip can unpack to millions."""

TARGETS_MAX = 1000
"""Maximum number of targets, each of which costs some 20 kB of memory."""

_GZIP_MEMBER = 31  # zlib's wbits: a 32 KB window, with gzip header and trailer
_MEMBERS = 16  # members per full file; whole members are cut off
_LEVEL = 6


def read(path: Path) -> Iterator[RawObservation]:
    """Yield a trace's observations, ignoring a truncated last line or gzip end. Raises RecordingError."""
    number, line, blank, targets = 0, b"", 0, set[str]()
    for following in _lines(path):
        if number:
            for observation in _parsed(path, number, line):
                targets.add(observation.target)
                yield observation
            blank += line.isspace()
            if blank > BLANK_LINES_MAX or len(targets) > TARGETS_MAX:
                much, what = (
                    (blank, "empty lines") if blank > BLANK_LINES_MAX else (len(targets), "targets")
                )
                cause = f"{path}, line {number}: the recording has {much} {what} up to here"
                raise RecordingError(cause, "give a file that `vllm-watch record` wrote")
        number, line = number + 1, following
    if number:
        yield from _parsed(path, number, line, is_last=True)


def _parsed(
    path: Path, number: int, line: bytes, *, is_last: bool = False
) -> Iterator[RawObservation]:
    if line.isspace():
        return
    try:
        observation = from_line(line)
    except ValueError as error:
        if is_last and _was_cut_short(line, error):
            return
        remedy = "take this line out to read the others"
        if number == 1:
            remedy = "give a file that `vllm-watch record` wrote; a log of vLLM: vllm-watch diagnose FILE"
        why = str(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"not JSON from column {error.colno} on"
        raise RecordingError(f"{path}, line {number}: {why}", remedy) from error
    yield observation


def _was_cut_short(line: bytes, error: Exception) -> bool:
    if not line.startswith(b"{"):
        return False
    if isinstance(error, UnicodeDecodeError):
        return error.end >= len(line.rstrip())
    if not isinstance(error, json.JSONDecodeError) or error.msg == "Extra data":
        return False
    at_its_end = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
    return at_its_end or not line.endswith(b"\n")


def _lines(path: Path) -> Iterator[bytes]:
    number = 0
    try:
        with regular_file.opened(path) as file:
            begins = file.peek(2)[:2]
            if begins in (b"", _GZIP_MAGIC[:1]):  # nothing written yet
                return
            is_gzip = begins == _GZIP_MAGIC
            source = gzip.GzipFile(fileobj=file, mode="rb") if is_gzip else file
            while line := source.readline(_LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > _LINE_BYTES_MAX:
                    cause = f"{path}, line {number}: longer than {_LINE_BYTES_MAX >> 20} MiB"
                    raise RecordingError(cause, "give a file that `vllm-watch record` wrote")
                yield line
    except EOFError:
        return
    except (gzip.BadGzipFile, zlib.error) as error:
        cause = f"{path}, line {number + 1}: damaged gzip data ({error})"
        raise RecordingError(cause, "copy the file again from where it was recorded") from error
    except OSError as error:
        cause = f"{path}: {error.strerror or error}"
        raise RecordingError(cause, "name a .jsonl or .jsonl.gz file that can be read") from error


def to_observation(raw: RawObservation, reader: Reader) -> Observation:
    """Convert a line. An invalid metrics text makes the outcome `garbled`, as in a live scrape."""
    scrape, reading = raw.scrape, None
    if scrape.outcome in ("ok", "garbled"):
        scrape, reading = _reading(raw, reader)
    known = {name: getattr(raw, name) for name in Observation.__annotations__}
    return Observation(**known | {"scrape": scrape, "reading": reading})


def _reading(raw: RawObservation, reader: Reader) -> tuple[Call, Reading | None]:
    body, scrape = raw.metrics, raw.scrape
    if body is None:
        error = scrape.error or "the recording holds no metrics text for this answer"
        return replace(scrape, outcome="garbled", error=error), None
    try:
        reading = reader.read(body, openmetrics=body.endswith("# EOF\n"))
    except ExpositionError as error:
        return replace(scrape, outcome="garbled", error=scrape.error or error.cause), None
    if scrape.outcome != "ok":
        scrape = replace(scrape, outcome="ok", error=None)
    if known := known_fields(raw.server, SERVER_FIELDS):
        reading = replace(reading, server=replace(reading.server, **known))
    return scrape, reading


class Writer:
    """Appends lines to one gzip file. When it is full, its newer half is copied to a second file. A killed process loses only the gzip trailer."""

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        """Raises RecordingError if the file cannot be created, or is not empty."""
        self._path = path
        self._bytes_max = bytes_max
        try:
            self._file = _append_to(path)
        except OSError as error:
            remedy = "choose a file name in a folder that can be written"
            raise RecordingError(f"{path}: {error.strerror}", remedy) from error
        if self._file.tell():
            self._file.close()
            remedy = "choose another name or remove it; recordings are not appended to"
            raise RecordingError(f"{path} is not empty", remedy)
        self._members = [0]  # offsets, oldest first; the last is being written
        self.size_bytes = 0
        self._deflate = zlib.compressobj(_LEVEL, wbits=_GZIP_MEMBER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, line: bytes) -> None:
        """Raises RecordingError if the disk fails."""
        try:
            # Flushing each line costs few bytes.
            self._append(self._deflate.compress(line) + self._deflate.flush(zlib.Z_SYNC_FLUSH))
            if self.size_bytes - self._members[-1] >= self._bytes_max // _MEMBERS:
                self._begin_member()
        except OSError as error:
            remedy = "make room, or give a smaller bound; the recording so far can be replayed"
            raise RecordingError(f"{self._path}: {error.strerror}", remedy) from error

    def close(self) -> None:
        """Raises RecordingError if the disk fails; the lines are safe even then."""
        if self._file.closed:
            return
        try:
            with self._file:
                self._append(self._deflate.flush(zlib.Z_FINISH))
        except OSError as error:
            remedy = "make room; the recording so far can be replayed"
            raise RecordingError(f"{self._path}: {error.strerror}", remedy) from error

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self.size_bytes += len(data)

    def _begin_member(self) -> None:
        self._append(self._deflate.flush(zlib.Z_FINISH))
        if self.size_bytes > self._bytes_max * (_MEMBERS - 2) // _MEMBERS:
            self._drop_older_half()
        self._members.append(self.size_bytes)
        self._deflate = zlib.compressobj(_LEVEL, wbits=_GZIP_MEMBER)

    def _drop_older_half(self) -> None:
        half = self.size_bytes - self._bytes_max // 2
        cut = next((offset for offset in self._members if offset >= half), self.size_bytes)
        shorter = self._path.with_name(f"{self._path.name}.shorter")
        try:
            shorter.unlink(missing_ok=True)
            with (
                regular_file.opened(self._path, follow=False) as source,
                open(shorter, "xb", opener=opener) as kept,
            ):
                source.seek(cut)
                shutil.copyfileobj(source, kept, 1 << 20)
            os.replace(shorter, self._path)
        except OSError:
            shorter.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file = _append_to(self._path)
        self._members = [offset - cut for offset in self._members if offset >= cut]
        self.size_bytes -= cut


def _append_to(path: Path) -> BinaryIO:
    return open(path, "ab", opener=opener)
