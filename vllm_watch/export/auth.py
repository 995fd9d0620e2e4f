"""Authorize changes by bearer tokens. Wrong tokens never lock out a valid token."""

import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from math import ceil

import structlog
from aiohttp import web

from vllm_watch.export.answers import refusal
from vllm_watch.settings.api import TokenSettings
from vllm_watch.support.token_file import TOKEN_BYTES_MAX, TokenFile

_log = structlog.get_logger()

FAILURES_MAX, FAILURES_SECONDS = 10, 60.0
"""Allowed wrong tokens per address and minute."""

CHANGES_MAX, CHANGES_SECONDS = 60, 60.0
"""Allowed requests per token and minute, far more than people send."""

ALERTS_MAX = 600
"""Allowed requests per minute from Alertmanager, which sends some hundred groups in an outage."""

CALLERS_MAX = 1024
"""Maximum number of addresses for which failures are counted."""


class Auth:
    """Authenticates and authorizes callers."""

    def __init__(self, tokens: Sequence[TokenSettings]) -> None:
        self._tokens = [TokenFile(each.name, each.file, each.may) for each in tokens]
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._asked: dict[str, deque[float]] = {}  # request times by actor

    @property
    def exists(self) -> bool:
        return bool(self._tokens)

    def actor(self, request: web.Request, right: str) -> str | web.Response:
        caller = request.remote or "unknown"
        given = _bearer(request.headers.get("Authorization", ""))
        found = self._match(given) if given is not None else None
        if found is None:
            too_many = given is not None and self._count(caller, request.path)
            return _slower("Too many wrong tokens", FAILURES_SECONDS) if too_many else _no_token()
        if right not in found.may:
            _log.warning("token_may_not", caller=caller, token_name=found.name, right=right)
            return refusal(
                403,
                f"The token {found.name} may not {right}",
                "See api.tokens in the configuration",
            )
        return self.too_fast(found.name, right) or found.name

    def too_fast(self, actor: str, right: str) -> web.Response | None:
        alerts = right == "alertmanager"
        asked = self._asked.setdefault(actor, deque())
        now_s = time.monotonic()
        while asked and now_s - asked[0] >= CHANGES_SECONDS:
            asked.popleft()
        if len(asked) >= (ALERTS_MAX if alerts else CHANGES_MAX):
            wait = CHANGES_SECONDS - (now_s - asked[0])
            text = f"{actor} has asked {len(asked)} times in {CHANGES_SECONDS:g} s"
            # Alertmanager retries a 5xx but not a 429.
            return _slower(text, wait, 503 if alerts else 429)
        asked.append(now_s)
        return None

    def _match(self, given: bytes) -> TokenFile | None:
        # Every token is compared, so that the time reveals nothing.
        digest, found = hashlib.sha256(given).digest(), None
        for token in self._tokens:
            known = token.digest()
            if hmac.compare_digest(digest, known or b"\0" * 32) and known is not None:
                found = token
        return found

    def _count(self, caller: str, path: str) -> bool:
        now_s = time.monotonic()
        recent = [t for t in self._failures.pop(caller, ()) if now_s - t < FAILURES_SECONDS]
        self._failures[caller] = [*recent, now_s][-FAILURES_MAX - 1 :]
        while len(self._failures) > CALLERS_MAX:
            self._failures.popitem(last=False)
        if len(recent) < FAILURES_MAX:
            _log.warning("wrong_token", caller=caller, path=path)
        elif len(recent) == FAILURES_MAX:
            _log.warning(
                "wrong_tokens", caller=caller, because="further ones are not logged for a while"
            )
        return len(recent) >= FAILURES_MAX


def _no_token() -> web.Response:
    response = refusal(
        401, "This needs a token", "Send Authorization: Bearer TOKEN, of one in api.tokens"
    )
    response.headers["WWW-Authenticate"] = 'Bearer realm="vllm-watch"'
    return response


def _slower(error: str, seconds: float, status: int = 429) -> web.Response:
    response = refusal(status, error, f"Wait {ceil(seconds)} s")
    response.headers["Retry-After"] = f"{ceil(seconds)}"
    return response


def _bearer(header: str) -> bytes | None:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    return token.strip().encode(errors="surrogateescape")[:TOKEN_BYTES_MAX]
