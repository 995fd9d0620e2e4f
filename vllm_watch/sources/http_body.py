"""The body of an answer while it arrives: unpacked, and never more of it kept than was allowed."""

import zlib

from vllm_watch.sources.http_failures import NotUnpackedError, TooLargeError


class Body:
    """Takes a body piece by piece.

    Raises ValueError where it is packed in a way that was not asked for.
    """

    __slots__ = ("_bytes_max", "_parts", "_room", "_unpack")

    def __init__(self, encoding: str, bytes_max: int) -> None:
        self._unpack = _unpacker(encoding) if encoding else None
        self._parts: list[bytes] = []
        self._bytes_max = self._room = bytes_max

    def take(self, piece: bytes) -> None:
        """Raise TooLargeError, NotUnpackedError or zlib.error."""
        if self._unpack is not None:
            piece = self._unpack.decompress(piece, self._room + 1)
            if self._unpack.unused_data:
                raise NotUnpackedError("bytes follow the end of the gzip body")
        self._room -= len(piece)
        if self._room < 0:
            raise TooLargeError(f"the body is longer than {self._bytes_max} bytes")
        if piece:
            self._parts.append(piece)

    def finish(self) -> bytes:
        """Return the whole of it, which has ended. Raises NotUnpackedError."""
        if self._unpack is not None and not self._unpack.eof:
            raise NotUnpackedError("the gzip body ends early")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def _unpacker(encoding: str) -> "zlib._Decompress | None":
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "deflate"):
        return zlib.decompressobj(
            zlib.MAX_WBITS | 32
        )  # 32: tell gzip and zlib apart by their header
    raise ValueError(f"content encoding {encoding[:20]!r} was not asked for")
