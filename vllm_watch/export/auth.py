"""Authorize, rate-limit and log requests to every endpoint that makes changes.

Wrong tokens never lock out a valid token.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil

import structlog
from aiohttp import web

from vllm_watch.export.answers import refusal
from vllm_watch.export.callers import is_this_host
from vllm_watch.settings.stages import TokenSettings
from vllm_watch.support.token_file import TOKEN_BYTES_MAX, Caller, TokenFile

_log = structlog.get_logger()

FAILURES_MAX, FAILURES_SECONDS = 10, 60.0
"""Allowed wrong tokens per address and minute."""

CHANGES_MAX, CHANGES_SECONDS = 60, 60.0
"""Allowed requests per token and minute, far more than people send."""

ALERTS_MAX = 600
"""Allowed requests per minute from Alertmanager, which sends some hundred groups in an outage."""

CALLERS_MAX = 1024
"""Maximum number of addresses for which failures are counted."""

ANSWER_SECONDS = 30.0
"""Maximum seconds for a change, enough for the restart guard's checks and lock."""

Handle = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]


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
            return slower("Too many wrong tokens", FAILURES_SECONDS) if too_many else _no_token()
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
            return slower(text, wait, 503 if alerts else 429)
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


def slower(error: str, seconds: float, status: int = 429) -> web.Response:
    """Return the refusal of a caller that asks too often."""
    response = refusal(status, error, f"Wait {ceil(seconds)} s")
    response.headers["Retry-After"] = f"{ceil(seconds)}"
    return response


def _bearer(header: str) -> bytes | None:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return None
    return token.strip().encode(errors="surrogateescape")[:TOKEN_BYTES_MAX]


@dataclass(frozen=True, slots=True)
class Guarded:
    """Calls `inner` if the caller has the right."""

    auth: Auth
    right: str
    inner: Handle
    of_this_host: str | None = None  # the actor, if callers on this host need no token

    async def handle(self, request: web.Request) -> web.StreamResponse:
        source = request.remote or "unknown"
        actor = self._actor(request)
        if not isinstance(actor, str):
            return actor
        caller = Caller(actor=actor, source=source)
        status: int | str = "cut off"
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                response = await self.inner(request, caller)
            status = response.status
        except TimeoutError:
            response = refusal(
                504, "There was no answer in time", "The journal shows whether it was done"
            )
            status = response.status
        finally:
            _log.info("change_asked", actor=actor, source=source, path=request.path, status=status)
        return response

    def _actor(self, request: web.Request) -> str | web.Response:
        no_token = "Authorization" not in request.headers or not self.auth.exists
        if no_token and self.of_this_host is not None and is_this_host(request):
            return self.auth.too_fast(self.of_this_host, self.right) or self.of_this_host
        if not self.auth.exists:
            return refusal(403, f"{request.remote} may not {self.right}",
                           "Ask from the watcher's own host, send SIGHUP, or configure api.tokens")  # fmt: skip
        return self.auth.actor(request, self.right)


def guard_of(request: web.Request) -> Guarded | None:
    """Return the Guarded of the requested route, or None."""
    owner = getattr(request.match_info.handler, "__self__", None)
    return owner if isinstance(owner, Guarded) else None
