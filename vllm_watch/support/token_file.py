"""A named bearer token in a file, read again when the file changes: a token can be replaced without a restart."""

import hashlib
from collections.abc import Collection
from pathlib import Path

import structlog

from vllm_watch.support import regular_file
from vllm_watch.support.redaction import never_show

_log = structlog.get_logger()

TOKEN_CHARACTERS_MIN = 16
"""Shorter ones can be guessed; `openssl rand -hex 32` makes a good one."""

TOKEN_BYTES_MAX = 4096


class TokenFile:
    """One token's file, and its digest as last read."""

    def __init__(self, name: str, file: Path, may: Collection[str]) -> None:
        self.name = name
        self.may = may
        """The rights of whoever has it."""
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._digest: bytes | None = None
        self._told = ""

    def digest(self) -> bytes | None:
        """Return the SHA-256 of the token; None where the file cannot be used, which is logged once."""
        try:
            stamp = regular_file.stamp(self._file.stat())
            if stamp != self._stamp:
                self._stamp, self._digest = stamp, None
                self._digest = _digest_of(self._file)
        except (OSError, ValueError) as error:
            self._digest = None
            if str(error) != self._told:
                _log.error("token_unusable", token_name=self.name, because=str(error))
            self._told = str(error)
        return self._digest


def _digest_of(file: Path) -> bytes:
    token = regular_file.read(file, TOKEN_BYTES_MAX, if_exposed="refused").strip()
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise ValueError(f"{file} holds no token of {TOKEN_CHARACTERS_MIN} characters or more")
    never_show(token.decode(errors="replace"))
    return hashlib.sha256(token).digest()
