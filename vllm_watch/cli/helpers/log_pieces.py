"""A log's bytes, piece by piece: of a file, packed or not, or of standard input."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from vllm_watch.errors import WatchError

_PIECE_BYTES = 256 << 10


def pieces(name: str) -> Iterator[bytes]:
    """Raises WatchError where it cannot be read; '-' is standard input."""
    try:
        if name == "-":
            yield from _read(sys.stdin.buffer)
            return
        with Path(name).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield from _read(cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise WatchError(
            f"{name} is damaged gzip", "copy it again, or unpack what there is"
        ) from None
    except OSError as error:
        cause = f"{name} cannot be read: {error.strerror or error}"
        raise WatchError(cause, "name a file that can be read, or '-' for standard input") from None


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
