"""A bearer token in a file, which is read again when it changes, and the caller that sent it."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from vllm_watch.support import regular_file
from vllm_watch.support.redaction import redact_always

_log = structlog.get_logger()

TOKEN_CHARACTERS_MIN = 16
"""Minimum length of a token. Shorter tokens can be guessed."""

TOKEN_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller that requests a change over HTTP: the name of the caller's token, and the caller's address."""

    actor: str
    source: str


class TokenFile:
    """A named token and its rights (`may`)."""

    def __init__(self, name: str, file: Path, may: Collection[str]) -> None:
        self.name = name
        self.may = may
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._digest: bytes | None = None
        self._last_error = ""

    def digest(self) -> bytes | None:
        """Return the SHA-256 of the token. None if the file is unusable, which is logged once."""
        try:
            stamp = regular_file.stamp(self._file.stat())
            if stamp != self._stamp:
                self._stamp, self._digest = stamp, None
                self._digest = _digest_of(self._file)
        except (OSError, ValueError) as error:
            self._digest = None
            if str(error) != self._last_error:
                _log.error("token_unusable", token_name=self.name, because=str(error))
            self._last_error = str(error)
        return self._digest


def _digest_of(file: Path) -> bytes:
    token = regular_file.read(file, TOKEN_BYTES_MAX, if_exposed="refused").strip()
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise ValueError(f"{file} holds no token of {TOKEN_CHARACTERS_MIN} characters or more")
    redact_always(token.decode(errors="replace"))
    return hashlib.sha256(token).digest()
