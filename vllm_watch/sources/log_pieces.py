"""Read a log in pieces: a file, gzipped or not, or standard input."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from vllm_watch.errors import WatchError
from vllm_watch.support import regular_file

_PIECE_BYTES = 256 << 10
_UNPACKED_RATIO_MAX, _UNPACKED_BYTES_MIN = 300, 16 << 20
"""A log may unpack to this many times its size, or to this many bytes. 2 MB of gzip can unpack to 2 GB."""


def pieces(name: str) -> Iterator[bytes]:
    """Yield the log; '-' is standard input. Raises WatchError if the log cannot be read."""
    try:
        if name == "-":
            yield from _read(sys.stdin.buffer)
            return
        with regular_file.opened(Path(name), pipes=True) as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield from _unpacked(name, file) if packed else _read(file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise WatchError(
            f"{name} is damaged gzip", "copy it again, or unpack the intact part"
        ) from None
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror or error}"
        raise WatchError(cause, "name a file that can be read, or '-' for standard input") from None


def _unpacked(name: str, file: BinaryIO) -> Iterator[bytes]:
    unpacked_bytes = 0
    for piece in _read(cast("IO[bytes]", gzip.GzipFile(fileobj=file))):
        unpacked_bytes += len(piece)
        if unpacked_bytes > max(_UNPACKED_BYTES_MIN, _UNPACKED_RATIO_MAX * file.tell()):
            cause = f"{name} unpacks to over {_UNPACKED_RATIO_MAX} times its size, as no log does"
            raise WatchError(cause, "unpack it with gunzip, and give the part that is a log")
        yield piece


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
