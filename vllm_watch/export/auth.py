"""Who may change something: named bearer tokens from files, compared in constant time.

Tokens are read again when their files change, so that one can be replaced without a restart. Wrong
tokens are counted per caller: after a few the caller is not even compared any more for a while.
"""

import hashlib
import hmac
import stat
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import structlog
from aiohttp import web

from vllm_watch.export.answers import refusal
from vllm_watch.settings.api import TokenSettings

_log = structlog.get_logger()

TOKEN_CHARACTERS_MIN = 16
"""Shorter ones can be guessed; `openssl rand -hex 32` makes a good one."""

TOKEN_BYTES_MAX = 4096

FAILURES_MAX, FAILURES_SECONDS = 10, 60.0
"""So many wrong tokens of one address in a minute are a mistake; more are an attack or a loop."""

CALLERS_MAX = 1024
"""Addresses remembered for their failures; the oldest are forgotten."""


class _Token:
    """One token's file, and its digest as last read."""

    def __init__(self, settings: TokenSettings) -> None:
        self.settings = settings
        self._stamp: tuple[int, int, int] | None = None
        self._digest: bytes | None = None
        self._told = ""

    def digest(self) -> bytes | None:
        """Return the SHA-256 of the token; None where the file cannot be used, which is logged once."""
        try:
            found = self.settings.file.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                self._stamp, self._digest = stamp, None
                self._digest = _digest_of(self.settings.file, found.st_mode)
        except (OSError, ValueError) as error:
            self._digest = None
            if str(error) != self._told:
                _log.error("token_unusable", token=self.settings.name, because=str(error))
            self._told = str(error)
        return self._digest


def _digest_of(file: Path, mode: int) -> bytes:
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"others may read {file}: chmod 600 it")
    with file.open("rb") as opened:
        token = opened.read(TOKEN_BYTES_MAX + 1).strip()
    if len(token) > TOKEN_BYTES_MAX or len(token) < TOKEN_CHARACTERS_MIN:
        raise ValueError(f"{file} holds no token of {TOKEN_CHARACTERS_MIN} characters or more")
    return hashlib.sha256(token).digest()


class Auth:
    """Says who a caller is and whether they may."""

    def __init__(self, tokens: Sequence[TokenSettings]) -> None:
        self._tokens = [_Token(each) for each in tokens]
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    @property
    def exists(self) -> bool:
        """Is there any token, and so any endpoint that changes something?"""
        return bool(self._tokens)

    def actor(self, request: web.Request, right: str) -> str | web.Response:
        """Return the token's name, or the answer that refuses the caller."""
        caller = request.remote or "unknown"
        recent = self._recent(caller)
        if len(recent) >= FAILURES_MAX:
            response = refusal(429, "Too many wrong tokens", f"Wait {FAILURES_SECONDS:g} s")
            response.headers["Retry-After"] = f"{FAILURES_SECONDS:g}"
            return response
        given = _bearer(request.headers.get("Authorization", ""))
        found = self._match(given) if given is not None else None
        if found is None:
            if given is not None:
                self._count(caller, recent)
                _log.warning("wrong_token", caller=caller, path=request.path)
            response = refusal(
                401, "This needs a token", "Send Authorization: Bearer TOKEN, of one in api.tokens"
            )
            response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-watch"'
            return response
        if right not in found.may:
            _log.warning("token_may_not", caller=caller, token=found.name, right=right)
            return refusal(
                403,
                f"The token {found.name} may not {right}",
                "See api.tokens in the configuration",
            )
        return found.name

    def _match(self, given: bytes) -> TokenSettings | None:
        """Every token is compared, also after one that matches: time tells nothing."""
        digest, found = hashlib.sha256(given).digest(), None
        for token in self._tokens:
            known = token.digest()
            if hmac.compare_digest(digest, known or b"\0" * 32) and known is not None:
                found = token.settings
        return found

    def _recent(self, caller: str) -> list[float]:
        now_s = time.monotonic()
        return [t for t in self._failures.get(caller, ()) if now_s - t < FAILURES_SECONDS]

    def _count(self, caller: str, recent: list[float]) -> None:
        self._failures[caller] = [*recent, time.monotonic()]
        self._failures.move_to_end(caller)
        while len(self._failures) > CALLERS_MAX:
            self._failures.popitem(last=False)


def _bearer(header: str) -> bytes | None:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    return token.strip().encode()[:TOKEN_BYTES_MAX]
